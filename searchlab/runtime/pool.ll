;; The thread pool behind parallel loops (searchlab/runtime/threadpool.py fills in ${...} and leaves out lines like this).
;;
;;     void parallel_for(ptr fn, ptr ctx, i64 n, i64 threads)
;;
;; calls `fn(i64 begin, i64 end, i64 slot, ptr ctx)` on pieces of [0, n) and returns when all of them are done.  No two
;; calls that run at the same time for one loop have the same slot; slots lie in [0, threads) and the caller's is 0.
;;
;; Each worker has a mailbox: empty, posted (there is work) or taken.  The caller describes the loop in global variables,
;; posts it to as many mailboxes as it wants helpers, and works itself.  Each thread has a part of the iterations and draws
;; pieces of it from an atomic counter, then pieces of the others' parts, so a thread that loses its core delays only the
;; piece it holds.  Parts are the same for every loop of a length: what a thread has written stays in its own caches for
;; the next loop, and for the next run.  When all parts are drawn, the caller takes back what is still posted and waits for
;; what is taken: a worker that is slow to wake up costs nothing.  Both sides spin for a bounded time, then sleep on
;; condition variables.  A loop that starts while another one runs (inside it, or from
;; another thread) finds the pool busy and runs in its own thread.
;;
;; No wake-up is lost: one side writes the mailbox and then reads whether the other sleeps, the other side says that it
;; sleeps and then reads the mailbox, all sequentially consistent, so at least one of them sees the other.
;;
;; Opaque pthread objects get more room than any system needs (at most 64 bytes); what is contended has its own lines.

%opaque = type [128 x i8]
; state (0 empty, 1 posted, 2 taken), asleep, padding, mutex, condition, CPUs of the worker, the worker, whether it is
; kept from some of its CPUs, padding
%box = type { i32, i32, [120 x i8], %opaque, %opaque, %opaque, ptr, i32, [116 x i8] }
@boxes = internal global [${BOXES} x %box] zeroinitializer, align 128
; the next iteration of a thread's part of the loop, its end, padding
%part = type { i64, i64, [112 x i8] }
@parts = internal global [${BOXES} x %part] zeroinitializer, align 128
@busy = internal global [32 x i32] zeroinitializer, align 128
@fn = internal global ptr null, align 128
@ctx = internal global ptr null
@hands = internal global i64 1
@piece = internal global i64 1
@workers = internal global i64 0
@spins = internal global i64 0
@waiting = internal global i32 0, align 128
@done_mutex = internal global %opaque zeroinitializer, align 128
@done_cond = internal global %opaque zeroinitializer, align 128
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
${DECLARE_PAUSE}

define internal void @share(i64 %slot) nounwind {
entry:
  %fn = load ptr, ptr @fn
  %ctx = load ptr, ptr @ctx
  %hands = load i64, ptr @hands
  %piece = load i64, ptr @piece
  br label %choose
choose:
  %others = phi i64 [0, %entry], [%others1, %empty]
  %sum = add i64 %slot, %others
  %less = sub i64 %sum, %hands
  %beyond = icmp sge i64 %less, 0
  %owner = select i1 %beyond, i64 %less, i64 %sum
  %from = getelementptr %part, ptr @parts, i64 %owner
  %to = getelementptr %part, ptr %from, i64 0, i32 1
  %n = load i64, ptr %to
  br label %draw
draw:
  %begin = atomicrmw add ptr %from, i64 %piece monotonic
  %left = icmp slt i64 %begin, %n
  br i1 %left, label %work, label %empty
work:
  %after = add i64 %begin, %piece
  %last = icmp slt i64 %n, %after
  %end = select i1 %last, i64 %n, i64 %after
  call void %fn(i64 %begin, i64 %end, i64 %slot, ptr %ctx)
  br label %draw
empty:
  %others1 = add i64 %others, 1
  %more = icmp slt i64 %others1, %hands
  br i1 %more, label %choose, label %out
out:
  ret void
}
${PLACEMENT}
define internal ptr @worker(ptr %arg) nounwind {
entry:
  %slot = ptrtoint ptr %arg to i64
  %box = getelementptr %box, ptr @boxes, i64 %slot
  %asleep = getelementptr %box, ptr %box, i64 0, i32 1
  %mutex = getelementptr %box, ptr %box, i64 0, i32 3
  %cond = getelementptr %box, ptr %box, i64 0, i32 4
  br label %idle
idle:
  %limit = load i64, ptr @spins
  br label %spin
spin:
  %i = phi i64 [0, %idle], [%i1, %again]
  %seen = load atomic i32, ptr %box monotonic, align 4
  %posted = icmp eq i32 %seen, 1
  br i1 %posted, label %take, label %count
count:
  %i1 = add i64 %i, 1
  %tired = icmp sgt i64 %i1, %limit
  br i1 %tired, label %doze, label %again
again:
  ${PAUSE}
  br label %spin
doze:
  %m1 = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %asleep seq_cst, align 4
  br label %check
check:
  %now = load atomic i32, ptr %box seq_cst, align 4
  %called = icmp eq i32 %now, 1
  br i1 %called, label %awake, label %sleep
sleep:
  %w = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %check
awake:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  call void @settle(ptr %box)
  %m2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %take
take:
  ; The caller may have taken the work back since.
  %pair = cmpxchg ptr %box, i32 1, i32 2 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %run, label %idle
run:
  call void @share(i64 %slot)
  store atomic i32 0, ptr %box seq_cst, align 4
  %awaited = load atomic i32, ptr @waiting seq_cst, align 4
  %tell = icmp ne i32 %awaited, 0
  br i1 %tell, label %notify, label %idle
notify:
  %n1 = call i32 @pthread_mutex_lock(ptr @done_mutex)
  %n2 = call i32 @pthread_cond_signal(ptr @done_cond)
  %n3 = call i32 @pthread_mutex_unlock(ptr @done_mutex)
  br label %idle
}

; Starts workers until there are %wanted; fewer if the system refuses. The caller holds @busy.
define internal void @start(i64 %wanted) nounwind {
entry:
  %attr = alloca %opaque, align 16
  %all = alloca %opaque, align 16
  %old = alloca %opaque, align 16
  ; Signals belong to the threads of Python.
  %s1 = call i32 @sigfillset(ptr %all)
  %s2 = call i32 @pthread_sigmask(i32 ${SETMASK}, ptr %all, ptr %old)
  %a1 = call i32 @pthread_attr_init(ptr %attr)
  %a2 = call i32 @pthread_attr_setstacksize(ptr %attr, i64 ${STACK})
  br label %test
test:
  %have = load i64, ptr @workers
  %more = icmp slt i64 %have, %wanted
  br i1 %more, label %create, label %out
create:
  %slot = add i64 %have, 1
  %box = getelementptr %box, ptr @boxes, i64 %slot
  %asleep = getelementptr %box, ptr %box, i64 0, i32 1
  %mutex = getelementptr %box, ptr %box, i64 0, i32 3
  %cond = getelementptr %box, ptr %box, i64 0, i32 4
  %thread = getelementptr %box, ptr %box, i64 0, i32 6
  %away = getelementptr %box, ptr %box, i64 0, i32 7
  store atomic i32 0, ptr %box seq_cst, align 4
  store atomic i32 0, ptr %asleep seq_cst, align 4
  store i32 0, ptr %away
  %m = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr %cond, ptr null)
  %arg = inttoptr i64 %slot to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr %attr, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %created, label %out
created:
  %id = load ptr, ptr %thread
  %d = call i32 @pthread_detach(ptr %id)
  store i64 %slot, ptr @workers
  br label %test
out:
  %a3 = call i32 @pthread_attr_destroy(ptr %attr)
  %s3 = call i32 @pthread_sigmask(i32 ${SETMASK}, ptr %old, ptr null)
  ret void
}

define internal i1 @claim() nounwind {
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  ret i1 %mine
}

; Workers ahead of the first loop. A busy pool is left alone: loops start what they lack.
define void @pool_grow(i64 %wanted) nounwind {
entry:
  %mine = call i1 @claim()
  br i1 %mine, label %grow, label %out
grow:
  call void @start(i64 %wanted)
  store atomic i32 0, ptr @busy release, align 4
  br label %out
out:
  ret void
}

; A pool without workers: before first use, and in the child of a fork, which inherits none.
define void @pool_reset(i64 %spins) nounwind {
  store i64 %spins, ptr @spins
  store i64 0, ptr @workers
  store atomic i32 0, ptr @waiting seq_cst, align 4
  %m = call i32 @pthread_mutex_init(ptr @done_mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @done_cond, ptr null)
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

define void @pool_spin(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %seen = load atomic i32, ptr @busy monotonic, align 4
  ${PAUSE}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}

; Takes the work back from a mailbox, or waits until the worker that took it is done.
define internal void @join(ptr %box) nounwind {
entry:
  %pair = cmpxchg ptr %box, i32 1, i32 0 acq_rel acquire
  %before = extractvalue { i32, i1 } %pair, 0
  %taken = icmp eq i32 %before, 2
  br i1 %taken, label %wait, label %out
wait:
  %limit = load i64, ptr @spins
  %patience = add i64 %limit, ${YIELDS}
  br label %spin
spin:
  %i = phi i64 [0, %wait], [%i1, %again], [%i1, %yield]
  %seen = load atomic i32, ptr %box acquire, align 4
  %done = icmp eq i32 %seen, 0
  br i1 %done, label %out, label %count
count:
  %i1 = add i64 %i, 1
  %short = icmp slt i64 %i1, %limit
  br i1 %short, label %again, label %longer
again:
  ${PAUSE}
  br label %spin
longer:
  %patient = icmp slt i64 %i1, %patience
  br i1 %patient, label %yield, label %doze
yield:
  %y = call i32 @sched_yield()
  br label %spin
doze:
  %m1 = call i32 @pthread_mutex_lock(ptr @done_mutex)
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %check
check:
  %now = load atomic i32, ptr %box seq_cst, align 4
  %finished = icmp eq i32 %now, 0
  br i1 %finished, label %awake, label %sleep
sleep:
  %w = call i32 @pthread_cond_wait(ptr @done_cond, ptr @done_mutex)
  br label %check
awake:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  %m2 = call i32 @pthread_mutex_unlock(ptr @done_mutex)
  br label %out
out:
  ret void
}

define internal void @post(ptr %box) nounwind {
entry:
  %asleep = getelementptr %box, ptr %box, i64 0, i32 1
  store atomic i32 1, ptr %box seq_cst, align 4
  %sleeps = load atomic i32, ptr %asleep seq_cst, align 4
  %must = icmp ne i32 %sleeps, 0
  br i1 %must, label %call, label %out
call:
  %mutex = getelementptr %box, ptr %box, i64 0, i32 3
  %cond = getelementptr %box, ptr %box, i64 0, i32 4
  ; Under the mutex the worker is either inside its wait, or has not yet looked at the mailbox.
  %1 = call i32 @pthread_mutex_lock(ptr %mutex)
  call void @send_away(ptr %box)
  %2 = call i32 @pthread_cond_signal(ptr %cond)
  %3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %out
out:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
define void @parallel_for(ptr %fn, ptr %ctx, i64 %n, i64 %threads) nounwind {
entry:
  %most = call i64 @llvm.smin.i64(i64 %threads, i64 %n)
  %helpers = add i64 %most, -1
  %capped = call i64 @llvm.smin.i64(i64 %helpers, i64 ${WORKERS})
  %some = icmp sgt i64 %capped, 0
  br i1 %some, label %try, label %alone
try:
  %mine = call i1 @claim()
  br i1 %mine, label %claimed, label %alone
alone:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %inline, label %out
inline:
  call void %fn(i64 0, i64 %n, i64 0, ptr %ctx)
  br label %out
claimed:
  %have = load i64, ptr @workers
  %few = icmp slt i64 %have, %capped
  br i1 %few, label %hire, label %describe
hire:
  call void @start(i64 %capped)
  br label %describe
describe:
  %workers = load i64, ptr @workers
  %used = call i64 @llvm.smin.i64(i64 %capped, i64 %workers)
  %hands = add i64 %used, 1
  %pieces = mul i64 %hands, ${PIECES}
  %even = sdiv i64 %n, %pieces
  %piece = call i64 @llvm.smax.i64(i64 %even, i64 1)
  store ptr %fn, ptr @fn
  store ptr %ctx, ptr @ctx
  store i64 %hands, ptr @hands
  store i64 %piece, ptr @piece
  br label %dividing
dividing:
  %h = phi i64 [0, %describe], [%h1, %dividing]
  %start = phi i64 [0, %describe], [%stop, %dividing]
  %h1 = add i64 %h, 1
  %whole = mul i64 %n, %h1
  %stop = sdiv i64 %whole, %hands
  %part = getelementptr %part, ptr @parts, i64 %h
  %stops = getelementptr %part, ptr %part, i64 0, i32 1
  store atomic i64 %start, ptr %part monotonic, align 8
  store i64 %stop, ptr %stops
  %divides = icmp slt i64 %h1, %hands
  br i1 %divides, label %dividing, label %posting
posting:
  %p = phi i64 [0, %dividing], [%p1, %send]
  %p1 = add i64 %p, 1
  %posts = icmp sle i64 %p1, %used
  br i1 %posts, label %send, label %work
send:
  %to = getelementptr %box, ptr @boxes, i64 %p1
  call void @post(ptr %to)
  br label %posting
work:
  call void @share(i64 0)
  br label %joining
joining:
  %j = phi i64 [0, %work], [%j1, %gather]
  %j1 = add i64 %j, 1
  %joins = icmp sle i64 %j1, %used
  br i1 %joins, label %gather, label %release
gather:
  %from = getelementptr %box, ptr @boxes, i64 %j1
  call void @join(ptr %from)
  br label %joining
release:
  store atomic i32 0, ptr @busy release, align 4
  br label %out
out:
  ret void
}
