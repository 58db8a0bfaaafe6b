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

;; pair(rows, number, down, across, numbers {height, width, taps down, taps across, places, group, none}, scratch, from,
;; to, taps of groups, groups, flags, reached, reached number): for every tap the pairs of a row's position in the list
;; and the place that the row reaches, in groups of one size, filled up with pairs of `none` and of no place; and the
;; places that are reached, each once.  A place is the sum of down[tap down, row of the image] and
;; across[tap across, column], either of which is negative where there is none; flags are 0, and that of no place is 1.
;; `scratch` has room for five lists of rows.
define void @pair(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %rows = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %count = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %down = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %across = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %numbers = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %ys = load ptr, ptr %p5
  %p6 = getelementptr ptr, ptr %args, i64 6
  %from = load ptr, ptr %p6
  %p7 = getelementptr ptr, ptr %args, i64 7
  %to = load ptr, ptr %p7
  %p8 = getelementptr ptr, ptr %args, i64 8
  %tapof = load ptr, ptr %p8
  %p9 = getelementptr ptr, ptr %args, i64 9
  %groups = load ptr, ptr %p9
  %p10 = getelementptr ptr, ptr %args, i64 10
  %flags = load ptr, ptr %p10
  %p11 = getelementptr ptr, ptr %args, i64 11
  %reached = load ptr, ptr %p11
  %p12 = getelementptr ptr, ptr %args, i64 12
  %reached.number = load ptr, ptr %p12
  %height = load i64, ptr %numbers
  %q1 = getelementptr i64, ptr %numbers, i64 1
  %width = load i64, ptr %q1
  %width32 = trunc i64 %width to i32
  %q2 = getelementptr i64, ptr %numbers, i64 2
  %taps.down = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %numbers, i64 3
  %taps.across = load i64, ptr %q3
  %q4 = getelementptr i64, ptr %numbers, i64 4
  %nowhere = load i64, ptr %q4
  %nowhere32 = trunc i64 %nowhere to i32
  %q5 = getelementptr i64, ptr %numbers, i64 5
  %size = load i64, ptr %q5
  %q6 = getelementptr i64, ptr %numbers, i64 6
  %none = load i64, ptr %q6
  %none32 = trunc i64 %none to i32
  %n32 = load i32, ptr %count
  %n = zext i32 %n32 to i64
  %pixels = mul i64 %height, %width
  %room = add i64 %pixels, 1
  %xs = getelementptr i32, ptr %ys, i64 %room
  %hits = getelementptr i32, ptr %xs, i64 %room
  %bases = getelementptr i32, ptr %hits, i64 %room
  %columns = getelementptr i32, ptr %bases, i64 %room
  %any = icmp ne i64 %n, 0
  br i1 %any, label %place, label %out
place:
  %c = phi i64 [ 0, %entry ], [ %c.next, %place ]
  %pr = getelementptr i32, ptr %rows, i64 %c
  %row = load i32, ptr %pr
  %y = udiv i32 %row, %width32
  %x = urem i32 %row, %width32
  %py = getelementptr i32, ptr %ys, i64 %c
  store i32 %y, ptr %py
  %px = getelementptr i32, ptr %xs, i64 %c
  store i32 %x, ptr %px
  %c.next = add i64 %c, 1
  %c.on = icmp ult i64 %c.next, %n
  br i1 %c.on, label %place, label %line
line:
  %ky = phi i64 [ 0, %place ], [ %ky.next, %line.end ]
  %line.at = phi i64 [ 0, %place ], [ %tap.at.end, %line.end ]
  %line.reached = phi i64 [ 0, %place ], [ %tap.reached.end, %line.end ]
  %line.base = mul i64 %ky, %height
  %downs = getelementptr i32, ptr %down, i64 %line.base
  %line.tap = mul i64 %ky, %taps.across
  br label %hit
hit:
  %i = phi i64 [ 0, %line ], [ %i.next, %hit ]
  %m = phi i64 [ 0, %line ], [ %m.next, %hit ]
  %iy = getelementptr i32, ptr %ys, i64 %i
  %iy32 = load i32, ptr %iy
  %iy64 = zext i32 %iy32 to i64
  %pd = getelementptr i32, ptr %downs, i64 %iy64
  %base = load i32, ptr %pd
  %ix = getelementptr i32, ptr %xs, i64 %i
  %column = load i32, ptr %ix
  %i32 = trunc i64 %i to i32
  %ph = getelementptr i32, ptr %hits, i64 %m
  store i32 %i32, ptr %ph
  %pb = getelementptr i32, ptr %bases, i64 %m
  store i32 %base, ptr %pb
  %pc = getelementptr i32, ptr %columns, i64 %m
  store i32 %column, ptr %pc
  %in = icmp sge i32 %base, 0
  %in64 = zext i1 %in to i64
  %m.next = add i64 %m, %in64
  %i.next = add i64 %i, 1
  %i.on = icmp ult i64 %i.next, %n
  br i1 %i.on, label %hit, label %tap
tap:
  %kx = phi i64 [ 0, %hit ], [ %kx.next, %tap.end ]
  %tap.at = phi i64 [ %line.at, %hit ], [ %f.at, %tap.end ]
  %tap.reached = phi i64 [ %line.reached, %hit ], [ %r.end, %tap.end ]
  %k = add i64 %line.tap, %kx
  %k32 = trunc i64 %k to i32
  %tap.base = mul i64 %kx, %width
  %acrosses = getelementptr i32, ptr %across, i64 %tap.base
  %tap.any = icmp ne i64 %m.next, 0
  br i1 %tap.any, label %loop, label %fill
loop:
  %j = phi i64 [ 0, %tap ], [ %j.next, %loop ]
  %at = phi i64 [ %tap.at, %tap ], [ %then, %loop ]
  %r = phi i64 [ %tap.reached, %tap ], [ %r.next, %loop ]
  %lc = getelementptr i32, ptr %columns, i64 %j
  %lc32 = load i32, ptr %lc
  %lc64 = zext i32 %lc32 to i64
  %pa = getelementptr i32, ptr %acrosses, i64 %lc64
  %right = load i32, ptr %pa
  %lb = getelementptr i32, ptr %bases, i64 %j
  %left = load i32, ptr %lb
  %lh = getelementptr i32, ptr %hits, i64 %j
  %source = load i32, ptr %lh
  %sum = add i32 %left, %right
  %is = icmp sge i32 %right, 0
  %to32 = select i1 %is, i32 %sum, i32 %nowhere32
  %pf = getelementptr i32, ptr %from, i64 %at
  store i32 %source, ptr %pf
  %pt = getelementptr i32, ptr %to, i64 %at
  store i32 %to32, ptr %pt
  %one = zext i1 %is to i64
  %then = add i64 %at, %one
  %to64 = zext i32 %to32 to i64
  %pl = getelementptr i8, ptr %flags, i64 %to64
  %flag = load i8, ptr %pl
  store i8 1, ptr %pl
  %rr = getelementptr i32, ptr %reached, i64 %r
  store i32 %to32, ptr %rr
  %new = xor i8 %flag, 1
  %new64 = zext i8 %new to i64
  %r.next = add i64 %r, %new64
  %j.next = add i64 %j, 1
  %j.on = icmp ult i64 %j.next, %m.next
  br i1 %j.on, label %loop, label %fill
fill:
  %f.at = phi i64 [ %tap.at, %tap ], [ %then, %loop ], [ %f.next, %filling ]
  %r.end = phi i64 [ %tap.reached, %tap ], [ %r.next, %loop ], [ %r.end, %filling ]
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
  %g.begin = udiv i64 %tap.at, %size
  %g.end = udiv i64 %f.at, %size
  br label %group
group:
  %g = phi i64 [ %g.begin, %filled ], [ %g.next, %grouping ]
  %g.on = icmp ult i64 %g, %g.end
  br i1 %g.on, label %grouping, label %tap.end
grouping:
  %pg = getelementptr i32, ptr %tapof, i64 %g
  store i32 %k32, ptr %pg
  %g.next = add i64 %g, 1
  br label %group
tap.end:
  %kx.next = add i64 %kx, 1
  %kx.on = icmp ult i64 %kx.next, %taps.across
  br i1 %kx.on, label %tap, label %line.end
line.end:
  %tap.at.end = phi i64 [ %f.at, %tap.end ]
  %tap.reached.end = phi i64 [ %r.end, %tap.end ]
  %ky.next = add i64 %ky, 1
  %ky.on = icmp ult i64 %ky.next, %taps.down
  br i1 %ky.on, label %line, label %paired
paired:
  %r.any = icmp ne i64 %tap.reached.end, 0
  br i1 %r.any, label %clear, label %out
clear:
  %d = phi i64 [ 0, %paired ], [ %d.next, %clear ]
  %dp = getelementptr i32, ptr %reached, i64 %d
  %d32 = load i32, ptr %dp
  %d64 = zext i32 %d32 to i64
  %df = getelementptr i8, ptr %flags, i64 %d64
  store i8 0, ptr %df
  %d.next = add i64 %d, 1
  %d.on = icmp ult i64 %d.next, %tap.reached.end
  br i1 %d.on, label %clear, label %out
out:
  %total = phi i64 [ 0, %entry ], [ %tap.at.end, %paired ], [ %tap.at.end, %clear ]
  %found = phi i64 [ 0, %entry ], [ 0, %paired ], [ %tap.reached.end, %clear ]
  %found32 = trunc i64 %found to i32
  store i32 %found32, ptr %reached.number
  %total.groups = udiv i64 %total, %size
  %total32 = trunc i64 %total.groups to i32
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
