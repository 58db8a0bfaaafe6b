;; Lists of pixels, as functions with the calling convention of kernels: %args points to the addresses of their arrays.
;; Pixels are rows of maps, numbered from 0; the row behind the last one stands for none.
;; Appending is without branches: an element is written at the end of a list, which moves on only if it counts.

;; keep(sizes, candidates, number, threshold, kept, kept number): candidates whose sizes exceed a threshold, in order.
;; A size that is not a number exceeds everything, so that it is not hidden.
define void @keep(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %size = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %from = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %count = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %limit = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %to = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %number = load ptr, ptr %p5
  %n32 = load i32, ptr %count
  %n = zext i32 %n32 to i64
  %t = load float, ptr %limit
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = phi i64 [ 0, %entry ], [ %then, %loop ]
  %ps = getelementptr float, ptr %size, i64 %i
  %s = load float, ptr %ps
  %pf = getelementptr i32, ptr %from, i64 %i
  %row = load i32, ptr %pf
  %pt = getelementptr i32, ptr %to, i64 %at
  store i32 %row, ptr %pt
  %more = fcmp ugt float %s, %t
  %one = zext i1 %more to i64
  %then = add i64 %at, %one
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %n
  br i1 %on, label %loop, label %out
out:
  %total = phi i64 [ 0, %entry ], [ %then, %loop ]
  %total32 = trunc i64 %total to i32
  store i32 %total32, ptr %number
  ret void
}

;; mark(rows, number, table, numbers {taps, places, table's step, begin, end}, flags, reached, reached number): appends
;; the places that rows reach by any tap, each once.  table[tap * step + row] is the place, or `places` for none, whose
;; flag is always set.  `begin` empties the list first, `end` takes the flags back.
define void @mark(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %rows = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %count = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %table = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %numbers = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %flags = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %to = load ptr, ptr %p5
  %p6 = getelementptr ptr, ptr %args, i64 6
  %number = load ptr, ptr %p6
  %taps = load i64, ptr %numbers
  %q2 = getelementptr i64, ptr %numbers, i64 2
  %step = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %numbers, i64 3
  %begin = load i64, ptr %q3
  %q4 = getelementptr i64, ptr %numbers, i64 4
  %end = load i64, ptr %q4
  %n32 = load i32, ptr %count
  %n = zext i32 %n32 to i64
  %old32 = load i32, ptr %number
  %old = zext i32 %old32 to i64
  %fresh = icmp ne i64 %begin, 0
  %first = select i1 %fresh, i64 0, i64 %old
  %any = icmp ne i64 %n, 0
  br i1 %any, label %tap, label %marked
tap:
  %k = phi i64 [ 0, %entry ], [ %k.next, %tap.end ]
  %tap.at = phi i64 [ %first, %entry ], [ %then, %tap.end ]
  %base = mul i64 %k, %step
  %places = getelementptr i32, ptr %table, i64 %base
  br label %loop
loop:
  %i = phi i64 [ 0, %tap ], [ %next, %loop ]
  %at = phi i64 [ %tap.at, %tap ], [ %then, %loop ]
  %pr = getelementptr i32, ptr %rows, i64 %i
  %row32 = load i32, ptr %pr
  %row = zext i32 %row32 to i64
  %pp = getelementptr i32, ptr %places, i64 %row
  %place32 = load i32, ptr %pp
  %place = zext i32 %place32 to i64
  %pt = getelementptr i32, ptr %to, i64 %at
  store i32 %place32, ptr %pt
  %pf = getelementptr i8, ptr %flags, i64 %place
  %flag = load i8, ptr %pf
  store i8 1, ptr %pf
  %new = xor i8 %flag, 1
  %one = zext i8 %new to i64
  %then = add i64 %at, %one
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %n
  br i1 %on, label %loop, label %tap.end
tap.end:
  %k.next = add i64 %k, 1
  %k.on = icmp ult i64 %k.next, %taps
  br i1 %k.on, label %tap, label %marked
marked:
  %total = phi i64 [ %first, %entry ], [ %then, %tap.end ]
  %total32 = trunc i64 %total to i32
  store i32 %total32, ptr %number
  %last = icmp ne i64 %end, 0
  %some = icmp ne i64 %total, 0
  %clears = and i1 %last, %some
  br i1 %clears, label %clear, label %out
clear:
  %j = phi i64 [ 0, %marked ], [ %j.next, %clear ]
  %pl = getelementptr i32, ptr %to, i64 %j
  %l32 = load i32, ptr %pl
  %l = zext i32 %l32 to i64
  %pc = getelementptr i8, ptr %flags, i64 %l
  store i8 0, ptr %pc
  %j.next = add i64 %j, 1
  %j.on = icmp ult i64 %j.next, %total
  br i1 %j.on, label %clear, label %out
out:
  ret void
}

;; pair(rows, number, table, numbers {taps, places, table's step, group, none}, from, to, taps of groups, groups):
;; for every tap the pairs of a row's position in the list and the place that the row reaches, in groups of one size,
;; filled up with pairs of `none` and of no place.
define void @pair(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %rows = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %count = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %table = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %numbers = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %from = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %to = load ptr, ptr %p5
  %p6 = getelementptr ptr, ptr %args, i64 6
  %tapof = load ptr, ptr %p6
  %p7 = getelementptr ptr, ptr %args, i64 7
  %groups = load ptr, ptr %p7
  %taps = load i64, ptr %numbers
  %q1 = getelementptr i64, ptr %numbers, i64 1
  %nowhere = load i64, ptr %q1
  %nowhere32 = trunc i64 %nowhere to i32
  %q2 = getelementptr i64, ptr %numbers, i64 2
  %step = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %numbers, i64 3
  %size = load i64, ptr %q3
  %q4 = getelementptr i64, ptr %numbers, i64 4
  %none = load i64, ptr %q4
  %none32 = trunc i64 %none to i32
  %n32 = load i32, ptr %count
  %n = zext i32 %n32 to i64
  %any = icmp ne i64 %n, 0
  br i1 %any, label %tap, label %out
tap:
  %k = phi i64 [ 0, %entry ], [ %k.next, %tap.end ]
  %tap.at = phi i64 [ 0, %entry ], [ %g.at, %tap.end ]
  %tap.group = phi i64 [ 0, %entry ], [ %g.end, %tap.end ]
  %k32 = trunc i64 %k to i32
  %base = mul i64 %k, %step
  %places = getelementptr i32, ptr %table, i64 %base
  br label %loop
loop:
  %i = phi i64 [ 0, %tap ], [ %next, %loop ]
  %at = phi i64 [ %tap.at, %tap ], [ %then, %loop ]
  %pr = getelementptr i32, ptr %rows, i64 %i
  %row32 = load i32, ptr %pr
  %row = zext i32 %row32 to i64
  %pp = getelementptr i32, ptr %places, i64 %row
  %place = load i32, ptr %pp
  %pf = getelementptr i32, ptr %from, i64 %at
  %i32 = trunc i64 %i to i32
  store i32 %i32, ptr %pf
  %pt = getelementptr i32, ptr %to, i64 %at
  store i32 %place, ptr %pt
  %is = icmp ne i32 %place, %nowhere32
  %one = zext i1 %is to i64
  %then = add i64 %at, %one
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %n
  br i1 %on, label %loop, label %fill
fill:
  %f.at = phi i64 [ %then, %loop ], [ %f.next, %filling ]
  %rest = urem i64 %f.at, %size
  %whole = icmp eq i64 %rest, 0
  br i1 %whole, label %filled, label %filling
filling:
  %ff = getelementptr i32, ptr %from, i64 %f.at
  store i32 %none32, ptr %ff
  %ft = getelementptr i32, ptr %to, i64 %f.at
  store i32 %nowhere32, ptr %ft
  %f.next = add i64 %f.at, 1
  br label %fill
filled:
  %g.end = udiv i64 %f.at, %size
  br label %group
group:
  %g = phi i64 [ %tap.group, %filled ], [ %g.next, %grouping ]
  %g.at = phi i64 [ %f.at, %filled ], [ %g.at, %grouping ]
  %g.on = icmp ult i64 %g, %g.end
  br i1 %g.on, label %grouping, label %tap.end
grouping:
  %pg = getelementptr i32, ptr %tapof, i64 %g
  store i32 %k32, ptr %pg
  %g.next = add i64 %g, 1
  br label %group
tap.end:
  %k.next = add i64 %k, 1
  %k.on = icmp ult i64 %k.next, %taps
  br i1 %k.on, label %tap, label %out
out:
  %total = phi i64 [ 0, %entry ], [ %g.end, %tap.end ]
  %total32 = trunc i64 %total to i32
  store i32 %total32, ptr %groups
  ret void
}

;; run(calls, number): calls functions one after the other; a call is the address of a function and its seven words.
define void @run(ptr %calls, i64 %number) nounwind {
entry:
  %any = icmp ne i64 %number, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %base = mul i64 %i, 8
  %at0 = getelementptr i64, ptr %calls, i64 %base
  %function = load ptr, ptr %at0
  %at1 = getelementptr i64, ptr %at0, i64 1
  %args = load ptr, ptr %at1
  %at2 = getelementptr i64, ptr %at0, i64 2
  %sizes = load ptr, ptr %at2
  %at3 = getelementptr i64, ptr %at0, i64 3
  %shared = load ptr, ptr %at3
  %at4 = getelementptr i64, ptr %at0, i64 4
  %private = load ptr, ptr %at4
  %at5 = getelementptr i64, ptr %at0, i64 5
  %stride = load i64, ptr %at5
  %at6 = getelementptr i64, ptr %at0, i64 6
  %pool = load ptr, ptr %at6
  %at7 = getelementptr i64, ptr %at0, i64 7
  %threads = load i64, ptr %at7
  call void %function(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads)
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %number
  br i1 %on, label %loop, label %out
out:
  ret void
}
