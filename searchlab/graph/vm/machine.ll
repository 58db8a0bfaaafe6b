;; The machine that runs compiled graphs (searchlab/graph/vm/machine.py fills in ${...} and leaves out lines like this).
;;
;; Registers are words of 64 bits: sizes and addresses.  Code is an array of words, too:
;;
;;     ${CALL}, callee, result, count, operands...    calls the builtin whose address is in the register `callee`
;;     ${RETURN}                                      ends the run
;;     ${JUMP}, to                                    goes on at the word `to`
;;     ${BRANCH}, register, to                        goes on at the word `to` if the register is zero
;;
;; All operands are registers.  Their values are gathered in a window of memory, and a builtin has the convention
;;
;;     i64 builtin(ptr context, ptr operands, ptr result)
;;
;; It returns 0, or the reason why the run ends; the context then tells which call it was, and what was wrong.  So
;; kernels, arithmetic on sizes, checks and memory are all calls, and the machine knows only four opcodes.
;;
;; A state is one block of memory: the context (fields ${FIELD_NAMES}), the
;; registers, the window.  States share nothing, so as many calls of a model as there are states may run at once.

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; --- the interpreter

define i64 @machine_run(ptr %state, i64 %start) nounwind {
entry:
  %model.p = getelementptr i64, ptr %state, i64 ${MODEL}
  %model = load ptr, ptr %model.p
  %code = load ptr, ptr %model
  %count.p = getelementptr i64, ptr %model, i64 ${MODEL_REGISTERS}
  %count = load i64, ptr %count.p
  %pc.p = getelementptr i64, ptr %state, i64 ${PC}
  %registers = getelementptr i64, ptr %state, i64 ${FIELDS}
  %window = getelementptr i64, ptr %registers, i64 %count
  br label %step
step:
  %pc = phi i64 [ %start, %entry ], [ %after, %called ], [ %to, %jump ], [ %other, %branch ]
  %at = getelementptr i64, ptr %code, i64 %pc
  %op = load i64, ptr %at
  %one.p = getelementptr i64, ptr %at, i64 1
  %two.p = getelementptr i64, ptr %at, i64 2
  switch i64 %op, label %done [ i64 ${CALL}, label %call
                                i64 ${JUMP}, label %jump
                                i64 ${BRANCH}, label %branch ]
jump:
  %to = load i64, ptr %one.p
  br label %step
branch:
  %tested = load i64, ptr %one.p
  %tested.p = getelementptr i64, ptr %registers, i64 %tested
  %value = load i64, ptr %tested.p
  %zero = icmp eq i64 %value, 0
  %there = load i64, ptr %two.p
  %next = add i64 %pc, 3
  %other = select i1 %zero, i64 %there, i64 %next
  br label %step
call:
  %callee = load i64, ptr %one.p
  %result = load i64, ptr %two.p
  %operands.p = getelementptr i64, ptr %at, i64 3
  %operands = load i64, ptr %operands.p
  %first = getelementptr i64, ptr %at, i64 4
  %any = icmp sgt i64 %operands, 0
  br i1 %any, label %gather, label %gathered
gather:
  %i = phi i64 [ 0, %call ], [ %i1, %gather ]
  %from.p = getelementptr i64, ptr %first, i64 %i
  %from = load i64, ptr %from.p
  %register = getelementptr i64, ptr %registers, i64 %from
  %word = load i64, ptr %register
  %put = getelementptr i64, ptr %window, i64 %i
  store i64 %word, ptr %put
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %operands
  br i1 %more, label %gather, label %gathered
gathered:
  store i64 %pc, ptr %pc.p
  %callee.p = getelementptr i64, ptr %registers, i64 %callee
  %builtin = load ptr, ptr %callee.p
  %result.p = getelementptr i64, ptr %registers, i64 %result
  %status = call i64 %builtin(ptr %state, ptr %window, ptr %result.p)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %called, label %failed
called:
  %length = add i64 %operands, 4
  %after = add i64 %pc, %length
  br label %step
failed:
  ret i64 %status
done:
  ret i64 0
}

; Runs the model on arrays of descriptors (${DESCRIPTOR_WORDS} words each).  A run that fails gives back what it holds.
define i64 @machine_call(ptr %state, ptr %inputs, ptr %outputs) nounwind {
entry:
  %model.p = getelementptr i64, ptr %state, i64 ${MODEL}
  %model = load ptr, ptr %model.p
  %template.p = getelementptr i64, ptr %model, i64 ${MODEL_TEMPLATE}
  %template = load ptr, ptr %template.p
  %count.p = getelementptr i64, ptr %model, i64 ${MODEL_REGISTERS}
  %count = load i64, ptr %count.p
  %bytes = shl i64 %count, 3
  %registers = getelementptr i64, ptr %state, i64 ${FIELDS}
  call void @llvm.memcpy.p0.p0.i64(ptr %registers, ptr %template, i64 %bytes, i1 false)
  %inputs.p = getelementptr i64, ptr %state, i64 ${INPUTS}
  store ptr %inputs, ptr %inputs.p
  %outputs.p = getelementptr i64, ptr %state, i64 ${OUTPUTS}
  store ptr %outputs, ptr %outputs.p
  %status = call i64 @machine_run(ptr %state, i64 0)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %out, label %failed
failed:
  %pc.p = getelementptr i64, ptr %state, i64 ${PC}
  %pc = load i64, ptr %pc.p
  %cleanup.p = getelementptr i64, ptr %model, i64 ${MODEL_CLEANUP}
  %cleanup = load i64, ptr %cleanup.p
  %ignored = call i64 @machine_run(ptr %state, i64 %cleanup)
  store i64 %pc, ptr %pc.p
  br label %out
out:
  ret i64 %status
}

; A new state for a model; null if there is no memory.
define ptr @machine_create(ptr %model, i64 %threads) nounwind {
entry:
  %place = alloca ptr, align 8
  %count.p = getelementptr i64, ptr %model, i64 ${MODEL_REGISTERS}
  %count = load i64, ptr %count.p
  %window.p = getelementptr i64, ptr %model, i64 ${MODEL_WINDOW}
  %window = load i64, ptr %window.p
  %words = add i64 %count, %window
  %all = add i64 %words, ${FIELDS}
  %bytes = shl i64 %all, 3
  %failed = call i32 @posix_memalign(ptr %place, i64 ${LINE}, i64 %bytes)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %fill, label %out
fill:
  %state = load ptr, ptr %place
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 %bytes, i1 false)
  %model.p = getelementptr i64, ptr %state, i64 ${MODEL}
  store ptr %model, ptr %model.p
  %pool.from = getelementptr i64, ptr %model, i64 ${MODEL_POOL}
  %pool = load ptr, ptr %pool.from
  %pool.p = getelementptr i64, ptr %state, i64 ${POOL}
  store ptr %pool, ptr %pool.p
  %threads.p = getelementptr i64, ptr %state, i64 ${THREADS}
  store i64 %threads, ptr %threads.p
  br label %out
out:
  %made = phi ptr [ null, %entry ], [ %state, %fill ]
  ret ptr %made
}

; Gives back all memory of a state that is not in use by a run.
define void @machine_destroy(ptr %state) nounwind {
entry:
  %scratch.p = getelementptr i64, ptr %state, i64 ${SCRATCH}
  %scratch = load ptr, ptr %scratch.p
  call void @free(ptr %scratch)
  %free.p = getelementptr i64, ptr %state, i64 ${FREE}
  %head = load ptr, ptr %free.p
  br label %test
test:
  %block = phi ptr [ %head, %entry ], [ %next, %drop ]
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %drop
drop:
  %next.p = getelementptr i64, ptr %block, i64 2
  %next = load ptr, ptr %next.p
  call void @free(ptr %block)
  br label %test
out:
  call void @free(ptr %state)
  ret void
}

; --- arithmetic on sizes

define i64 @builtin_add(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %both = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %x, i64 %y)
  %sum = extractvalue {i64, i1} %both, 0
  %over = extractvalue {i64, i1} %both, 1
  store i64 %sum, ptr %result
  %status = select i1 %over, i64 ${OVERFLOW}, i64 0
  ret i64 %status
}

define i64 @builtin_mul(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %both = call {i64, i1} @llvm.smul.with.overflow.i64(i64 %x, i64 %y)
  %product = extractvalue {i64, i1} %both, 0
  %over = extractvalue {i64, i1} %both, 1
  store i64 %product, ptr %result
  %status = select i1 %over, i64 ${OVERFLOW}, i64 0
  ret i64 %status
}

; The quotient rounded down, and the remainder that goes with it.
define internal i64 @divided(ptr %a, ptr %result, i1 %quotient) nounwind alwaysinline {
entry:
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %positive = icmp sgt i64 %y, 0
  br i1 %positive, label %some, label %out
some:
  %q = sdiv i64 %x, %y
  %back = mul i64 %q, %y
  %r = sub i64 %x, %back
  %below = icmp slt i64 %r, 0
  %q1 = add i64 %q, -1
  %r1 = add i64 %r, %y
  %floor = select i1 %below, i64 %q1, i64 %q
  %rest = select i1 %below, i64 %r1, i64 %r
  %chosen = select i1 %quotient, i64 %floor, i64 %rest
  store i64 %chosen, ptr %result
  br label %out
out:
  %status = phi i64 [ ${DIVISION}, %entry ], [ 0, %some ]
  ret i64 %status
}

define i64 @builtin_floordiv(ptr %state, ptr %a, ptr %result) nounwind {
  %status = call i64 @divided(ptr %a, ptr %result, i1 true)
  ret i64 %status
}

define i64 @builtin_mod(ptr %state, ptr %a, ptr %result) nounwind {
  %status = call i64 @divided(ptr %a, ptr %result, i1 false)
  ret i64 %status
}

define i64 @builtin_min(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %less = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  store i64 %less, ptr %result
  ret i64 0
}

define i64 @builtin_max(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %most = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  store i64 %most, ptr %result
  ret i64 0
}

; 1 or 0: whether the first number is at most the second
define i64 @builtin_at_most(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %x = load i64, ptr %a
  %y = load i64, ptr %b.p
  %is = icmp sle i64 %x, %y
  %word = zext i1 %is to i64
  store i64 %word, ptr %result
  ret i64 0
}

; --- arguments and checks

define internal i64 @compared(ptr %state, i64 %got, i64 %expected) nounwind {
entry:
  %same = icmp eq i64 %got, %expected
  br i1 %same, label %out, label %differ
differ:
  %got.p = getelementptr i64, ptr %state, i64 ${GOT}
  store i64 %got, ptr %got.p
  %expected.p = getelementptr i64, ptr %state, i64 ${EXPECTED}
  store i64 %expected, ptr %expected.p
  br label %out
out:
  %status = phi i64 [ 0, %entry ], [ ${MISMATCH}, %differ ]
  ret i64 %status
}

; got, expected
define i64 @builtin_check_equal(ptr %state, ptr %a, ptr %result) nounwind {
  %b.p = getelementptr i64, ptr %a, i64 1
  %got = load i64, ptr %a
  %expected = load i64, ptr %b.p
  %status = call i64 @compared(ptr %state, i64 %got, i64 %expected)
  ret i64 %status
}

; value, least, most
define i64 @builtin_check_range(ptr %state, ptr %a, ptr %result) nounwind {
  %low.p = getelementptr i64, ptr %a, i64 1
  %high.p = getelementptr i64, ptr %a, i64 2
  %value = load i64, ptr %a
  %low = load i64, ptr %low.p
  %high = load i64, ptr %high.p
  %above = call i64 @llvm.smax.i64(i64 %value, i64 %low)
  %inside = call i64 @llvm.smin.i64(i64 %above, i64 %high)
  %status = call i64 @compared(ptr %state, i64 %value, i64 %inside)
  ret i64 %status
}

define internal ptr @input(ptr %state, ptr %a) nounwind alwaysinline {
  %inputs.p = getelementptr i64, ptr %state, i64 ${INPUTS}
  %inputs = load ptr, ptr %inputs.p
  %number = load i64, ptr %a
  %words = mul i64 %number, ${DESCRIPTOR_WORDS}
  %found = getelementptr i64, ptr %inputs, i64 %words
  ret ptr %found
}

; input
define i64 @builtin_data(ptr %state, ptr %a, ptr %result) nounwind {
  %input = call ptr @input(ptr %state, ptr %a)
  %data = load i64, ptr %input
  store i64 %data, ptr %result
  ret i64 0
}

; input, axis
define i64 @builtin_extent(ptr %state, ptr %a, ptr %result) nounwind {
  %input = call ptr @input(ptr %state, ptr %a)
  %axis.p = getelementptr i64, ptr %a, i64 1
  %axis = load i64, ptr %axis.p
  %shape = getelementptr i64, ptr %input, i64 ${SHAPE_AT}
  %extent.p = getelementptr i64, ptr %shape, i64 %axis
  %extent = load i64, ptr %extent.p
  store i64 %extent, ptr %result
  ret i64 0
}

; input, dtype
define i64 @builtin_check_dtype(ptr %state, ptr %a, ptr %result) nounwind {
  %input = call ptr @input(ptr %state, ptr %a)
  %dtype.p = getelementptr i64, ptr %input, i64 ${DTYPE_AT}
  %got = load i64, ptr %dtype.p
  %expected.p = getelementptr i64, ptr %a, i64 1
  %expected = load i64, ptr %expected.p
  %status = call i64 @compared(ptr %state, i64 %got, i64 %expected)
  ret i64 %status
}

; input, rank
define i64 @builtin_check_rank(ptr %state, ptr %a, ptr %result) nounwind {
  %input = call ptr @input(ptr %state, ptr %a)
  %rank.p = getelementptr i64, ptr %input, i64 ${RANK_AT}
  %got = load i64, ptr %rank.p
  %expected.p = getelementptr i64, ptr %a, i64 1
  %expected = load i64, ptr %expected.p
  %status = call i64 @compared(ptr %state, i64 %got, i64 %expected)
  ret i64 %status
}

; --- memory

define internal void @logged(ptr %state, i64 %event, i64 %storage, i64 %bytes) nounwind {
entry:
  %log.p = getelementptr i64, ptr %state, i64 ${LOG}
  %log = load ptr, ptr %log.p
  %off = icmp eq ptr %log, null
  br i1 %off, label %out, label %note
note:
  %count.p = getelementptr i64, ptr %state, i64 ${LOGGED}
  %count = load i64, ptr %count.p
  %at = mul i64 %count, 3
  %event.p = getelementptr i64, ptr %log, i64 %at
  %storage.p = getelementptr i64, ptr %event.p, i64 1
  %bytes.p = getelementptr i64, ptr %event.p, i64 2
  store i64 %event, ptr %event.p
  store i64 %storage, ptr %storage.p
  store i64 %bytes, ptr %bytes.p
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count.p
  br label %out
out:
  ret void
}

; What nobody should read is made recognisable, if that is asked for: NaN in floats.
define internal void @spoil(ptr %state, ptr %memory, i64 %bytes) nounwind {
entry:
  %poison.p = getelementptr i64, ptr %state, i64 ${POISON}
  %poison = load i64, ptr %poison.p
  %off = icmp eq i64 %poison, 0
  br i1 %off, label %out, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %memory, i8 -1, i64 %bytes, i1 false)
  br label %out
out:
  ret void
}

; bytes, storage, whether blocks are kept.  A block has a line before it: its bytes, its number, the next free block.
; Of the free blocks that hold the bytes and are at most twice as large, the smallest is taken, of equals the first made.
define i64 @builtin_acquire(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %place = alloca ptr, align 8
  %wanted = load i64, ptr %a
  %storage.p = getelementptr i64, ptr %a, i64 1
  %storage = load i64, ptr %storage.p
  %up = add i64 %wanted, ${LINE_LESS_ONE}
  %bytes = and i64 %up, -${LINE}
  %most = shl i64 %bytes, 1
  %free.p = getelementptr i64, ptr %state, i64 ${FREE}
  %head = load ptr, ptr %free.p
  br label %test
test:
  %link = phi ptr [ %free.p, %entry ], [ %next.p, %seen ]
  %block = phi ptr [ %head, %entry ], [ %next, %seen ]
  %best.link = phi ptr [ null, %entry ], [ %best.link1, %seen ]
  %best.size = phi i64 [ 0, %entry ], [ %best.size1, %seen ]
  %best.number = phi i64 [ 0, %entry ], [ %best.number1, %seen ]
  %end = icmp eq ptr %block, null
  br i1 %end, label %choose, label %seen
seen:
  %number.p = getelementptr i64, ptr %block, i64 1
  %next.p = getelementptr i64, ptr %block, i64 2
  %next = load ptr, ptr %next.p
  %size = load i64, ptr %block
  %number = load i64, ptr %number.p
  %holds = icmp sge i64 %size, %bytes
  %near = icmp sle i64 %size, %most
  %fits = and i1 %holds, %near
  %first = icmp eq ptr %best.link, null
  %smaller = icmp slt i64 %size, %best.size
  %equal = icmp eq i64 %size, %best.size
  %older = icmp slt i64 %number, %best.number
  %earlier = and i1 %equal, %older
  %better = or i1 %smaller, %earlier
  %wins = or i1 %first, %better
  %take = and i1 %fits, %wins
  %best.link1 = select i1 %take, ptr %link, ptr %best.link
  %best.size1 = select i1 %take, i64 %size, i64 %best.size
  %best.number1 = select i1 %take, i64 %number, i64 %best.number
  br label %test
choose:
  %none = icmp eq ptr %best.link, null
  br i1 %none, label %allocate, label %reuse
reuse:
  %found = load ptr, ptr %best.link
  %after.p = getelementptr i64, ptr %found, i64 2
  %after = load ptr, ptr %after.p
  store ptr %after, ptr %best.link
  br label %hand
allocate:
  %all = add i64 %bytes, ${LINE}
  %failed = call i32 @posix_memalign(ptr %place, i64 ${LINE}, i64 %all)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %new, label %refused
new:
  %made = load ptr, ptr %place
  %made.number.p = getelementptr i64, ptr %made, i64 1
  %blocks.p = getelementptr i64, ptr %state, i64 ${BLOCKS}
  %blocks = load i64, ptr %blocks.p
  store i64 %bytes, ptr %made
  store i64 %blocks, ptr %made.number.p
  %blocks1 = add i64 %blocks, 1
  store i64 %blocks1, ptr %blocks.p
  br label %hand
hand:
  %given = phi ptr [ %found, %reuse ], [ %made, %new ]
  %event = phi i64 [ ${REUSE}, %reuse ], [ ${ALLOCATE}, %new ]
  %held = load i64, ptr %given
  %memory = getelementptr i8, ptr %given, i64 ${LINE}
  call void @logged(ptr %state, i64 %event, i64 %storage, i64 %held)
  call void @spoil(ptr %state, ptr %memory, i64 %held)
  store ptr %memory, ptr %result
  ret i64 0
refused:
  %got.p = getelementptr i64, ptr %state, i64 ${GOT}
  store i64 %bytes, ptr %got.p
  ret i64 ${NO_MEMORY}
}

; address, storage, whether the block is kept for later; the result is null.  A null address is not held.
define i64 @builtin_release(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %memory = load ptr, ptr %a
  %nothing = icmp eq ptr %memory, null
  br i1 %nothing, label %out, label %held
held:
  %storage.p = getelementptr i64, ptr %a, i64 1
  %keep.p = getelementptr i64, ptr %a, i64 2
  %storage = load i64, ptr %storage.p
  %keep = load i64, ptr %keep.p
  %block = getelementptr i8, ptr %memory, i64 -${LINE}
  %bytes = load i64, ptr %block
  call void @spoil(ptr %state, ptr %memory, i64 %bytes)
  store ptr null, ptr %result
  %kept = icmp ne i64 %keep, 0
  br i1 %kept, label %pool, label %drop
pool:
  call void @logged(ptr %state, i64 ${RELEASE}, i64 %storage, i64 %bytes)
  %free.p = getelementptr i64, ptr %state, i64 ${FREE}
  %head = load ptr, ptr %free.p
  %next.p = getelementptr i64, ptr %block, i64 2
  store ptr %head, ptr %next.p
  store ptr %block, ptr %free.p
  br label %out
drop:
  call void @logged(ptr %state, i64 ${FREED}, i64 %storage, i64 %bytes)
  call void @free(ptr %block)
  br label %out
out:
  ret i64 0
}

; address, bytes: what is there will not be read again
define i64 @builtin_forget(ptr %state, ptr %a, ptr %result) nounwind {
  %memory = load ptr, ptr %a
  %bytes.p = getelementptr i64, ptr %a, i64 1
  %bytes = load i64, ptr %bytes.p
  call void @spoil(ptr %state, ptr %memory, i64 %bytes)
  ret i64 0
}

; to, from, bytes
define i64 @builtin_copy(ptr %state, ptr %a, ptr %result) nounwind {
  %from.p = getelementptr i64, ptr %a, i64 1
  %bytes.p = getelementptr i64, ptr %a, i64 2
  %to = load ptr, ptr %a
  %from = load ptr, ptr %from.p
  %bytes = load i64, ptr %bytes.p
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret i64 0
}

; table, indices, their bytes (4 or 8), result, rows before the axis, extent of the axis, number of indices, bytes of what
; follows the axis: copies what is at the indices.  Negative ones count from the end.
define i64 @builtin_take(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %indices.p = getelementptr i64, ptr %a, i64 1
  %width.p = getelementptr i64, ptr %a, i64 2
  %out.p = getelementptr i64, ptr %a, i64 3
  %outer.p = getelementptr i64, ptr %a, i64 4
  %extent.p = getelementptr i64, ptr %a, i64 5
  %count.p = getelementptr i64, ptr %a, i64 6
  %inner.p = getelementptr i64, ptr %a, i64 7
  %table = load ptr, ptr %a
  %indices = load ptr, ptr %indices.p
  %width = load i64, ptr %width.p
  %out = load ptr, ptr %out.p
  %outer = load i64, ptr %outer.p
  %extent = load i64, ptr %extent.p
  %count = load i64, ptr %count.p
  %inner = load i64, ptr %inner.p
  %short = icmp eq i64 %width, 4
  %all = mul i64 %outer, %count
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n1, %copy ]
  %more = icmp slt i64 %n, %all
  br i1 %more, label %read, label %out.of
read:
  %row = udiv i64 %n, %count
  %at = urem i64 %n, %count
  br i1 %short, label %narrow, label %wide
narrow:
  %narrow.p = getelementptr i32, ptr %indices, i64 %at
  %narrow.value = load i32, ptr %narrow.p
  %extended = sext i32 %narrow.value to i64
  br label %check
wide:
  %wide.p = getelementptr i64, ptr %indices, i64 %at
  %wide.value = load i64, ptr %wide.p
  br label %check
check:
  %given = phi i64 [ %extended, %narrow ], [ %wide.value, %wide ]
  %negative = icmp slt i64 %given, 0
  %turned = add i64 %given, %extent
  %place = select i1 %negative, i64 %turned, i64 %given
  %inside = icmp ult i64 %place, %extent
  br i1 %inside, label %copy, label %outside
copy:
  %begin = mul i64 %row, %extent
  %from = add i64 %begin, %place
  %from.bytes = mul i64 %from, %inner
  %to.bytes = mul i64 %n, %inner
  %from.p = getelementptr i8, ptr %table, i64 %from.bytes
  %to.p = getelementptr i8, ptr %out, i64 %to.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to.p, ptr %from.p, i64 %inner, i1 false)
  %n1 = add i64 %n, 1
  br label %test
outside:
  %got.p = getelementptr i64, ptr %state, i64 ${GOT}
  store i64 %given, ptr %got.p
  ret i64 ${MISMATCH}
out.of:
  ret i64 0
}

define internal ptr @output(ptr %state, ptr %a) nounwind alwaysinline {
  %outputs.p = getelementptr i64, ptr %state, i64 ${OUTPUTS}
  %outputs = load ptr, ptr %outputs.p
  %number = load i64, ptr %a
  %words = mul i64 %number, ${DESCRIPTOR_WORDS}
  %found = getelementptr i64, ptr %outputs, i64 %words
  ret ptr %found
}

; output, bytes, dtype, rank, extents...: fills the descriptor, and allocates memory unless the caller gave some
define i64 @builtin_output(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %place = alloca ptr, align 8
  %output = call ptr @output(ptr %state, ptr %a)
  %wanted.p = getelementptr i64, ptr %a, i64 1
  %wanted = load i64, ptr %wanted.p
  %dtype.from = getelementptr i64, ptr %a, i64 2
  %rank.from = getelementptr i64, ptr %a, i64 3
  %shape.from = getelementptr i64, ptr %a, i64 4
  %rank = load i64, ptr %rank.from
  %dtype.p = getelementptr i64, ptr %output, i64 ${DTYPE_AT}
  %words = add i64 %rank, 2
  %length = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %dtype.p, ptr %dtype.from, i64 %length, i1 false)
  %room.p = getelementptr i64, ptr %output, i64 ${BYTES_AT}
  %owned.p = getelementptr i64, ptr %output, i64 ${OWNED_AT}
  %given = load ptr, ptr %output
  %ours = icmp eq ptr %given, null
  br i1 %ours, label %allocate, label %theirs
theirs:
  %room = load i64, ptr %room.p
  %enough = call i64 @llvm.smax.i64(i64 %room, i64 %wanted)
  %misfit = call i64 @compared(ptr %state, i64 %room, i64 %enough)
  store ptr %given, ptr %result
  ret i64 %misfit
allocate:
  %failed = call i32 @posix_memalign(ptr %place, i64 ${LINE}, i64 %wanted)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %refused
made:
  %memory = load ptr, ptr %place
  store ptr %memory, ptr %output
  store i64 %wanted, ptr %room.p
  store i64 1, ptr %owned.p
  store ptr %memory, ptr %result
  call void @spoil(ptr %state, ptr %memory, i64 %wanted)
  ret i64 0
refused:
  %got.p = getelementptr i64, ptr %state, i64 ${GOT}
  store i64 %wanted, ptr %got.p
  ret i64 ${NO_MEMORY}
}

; output: frees what a failed run has allocated for the caller
define i64 @builtin_drop_output(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %output = call ptr @output(ptr %state, ptr %a)
  %owned.p = getelementptr i64, ptr %output, i64 ${OWNED_AT}
  %owned = load i64, ptr %owned.p
  %ours = icmp ne i64 %owned, 0
  br i1 %ours, label %drop, label %out
drop:
  %memory = load ptr, ptr %output
  call void @free(ptr %memory)
  store ptr null, ptr %output
  store i64 0, ptr %owned.p
  br label %out
out:
  ret i64 0
}

; --- calls

; kernel, scratch memory or null, its bytes shared by threads and those of each, number of arrays, arrays..., sizes...
define i64 @builtin_kernel(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %given.p = getelementptr i64, ptr %a, i64 1
  %shared.p = getelementptr i64, ptr %a, i64 2
  %stride.p = getelementptr i64, ptr %a, i64 3
  %arrays.p = getelementptr i64, ptr %a, i64 4
  %arrays = getelementptr i64, ptr %a, i64 5
  %given = load ptr, ptr %given.p
  %kernel = load ptr, ptr %a
  %shared = load i64, ptr %shared.p
  %stride = load i64, ptr %stride.p
  %count = load i64, ptr %arrays.p
  %sizes = getelementptr i64, ptr %arrays, i64 %count
  %threads.p = getelementptr i64, ptr %state, i64 ${THREADS}
  %threads = load i64, ptr %threads.p
  %pool.p = getelementptr i64, ptr %state, i64 ${POOL}
  %pool = load ptr, ptr %pool.p
  %private = mul i64 %stride, %threads
  %need = add i64 %shared, %private
  %scratch.p = getelementptr i64, ptr %state, i64 ${SCRATCH}
  %have.p = getelementptr i64, ptr %state, i64 ${SCRATCH_BYTES}
  %have = load i64, ptr %have.p
  %short = icmp sgt i64 %need, %have
  %ours = icmp eq ptr %given, null
  %must = and i1 %ours, %short
  br i1 %must, label %grow, label %run
grow:
  %old = load ptr, ptr %scratch.p
  call void @free(ptr %old)
  store ptr null, ptr %scratch.p
  store i64 0, ptr %have.p
  %failed = call i32 @posix_memalign(ptr %scratch.p, i64 ${LINE}, i64 %need)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %grown, label %refused
grown:
  store i64 %need, ptr %have.p
  br label %run
run:
  %kept = load ptr, ptr %scratch.p
  %base = select i1 %ours, ptr %kept, ptr %given
  %own = getelementptr i8, ptr %base, i64 %shared
  call void %kernel(ptr %arrays, ptr %sizes, ptr %base, ptr %own, i64 %stride, ptr %pool, i64 %threads)
  ret i64 0
refused:
  %got.p = getelementptr i64, ptr %state, i64 ${GOT}
  store i64 %need, ptr %got.p
  ret i64 ${NO_MEMORY}
}

; site, words...: a function outside the machine, which the state names
define i64 @builtin_library(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %library.p = getelementptr i64, ptr %state, i64 ${LIBRARY}
  %library = load ptr, ptr %library.p
  %none = icmp eq ptr %library, null
  br i1 %none, label %out, label %call
call:
  %status = call i64 %library(ptr %state, ptr %a)
  br label %out
out:
  %code = phi i64 [ ${NO_LIBRARY}, %entry ], [ %status, %call ]
  ret i64 %code
}

; number: the time at which a call of the graph begins, if times are asked for
define i64 @builtin_stamp(ptr %state, ptr %a, ptr %result) nounwind {
entry:
  %now = alloca [2 x i64], align 8
  %times.p = getelementptr i64, ptr %state, i64 ${TIMES}
  %times = load ptr, ptr %times.p
  %off = icmp eq ptr %times, null
  br i1 %off, label %out, label %note
note:
  %failed = call i32 @clock_gettime(i32 1, ptr %now)
  %fraction.p = getelementptr i64, ptr %now, i64 1
  %whole = load i64, ptr %now
  %fraction = load i64, ptr %fraction.p
  %scaled = mul i64 %whole, 1000000000
  %all = add i64 %scaled, %fraction
  %number = load i64, ptr %a
  %at = getelementptr i64, ptr %times, i64 %number
  store i64 %all, ptr %at
  br label %out
out:
  ret i64 0
}
