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

;; mark(rows, number, lines, columns, numbers {width, lines of a row, columns of a row, nowhere}, flags): sets the flags of
;; the places that rows reach.  A pixel reaches every place that is the sum of a line of its row in the image and of a
;; column of its column; a sum that is larger than `nowhere` counts as that.
define void @mark(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %rows = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %count = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %lines = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %columns = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %numbers = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %flags = load ptr, ptr %p5
  %width64 = load i64, ptr %numbers
  %width = trunc i64 %width64 to i32
  %q1 = getelementptr i64, ptr %numbers, i64 1
  %down = load i64, ptr %q1
  %q2 = getelementptr i64, ptr %numbers, i64 2
  %across = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %numbers, i64 3
  %nowhere64 = load i64, ptr %q3
  %nowhere = trunc i64 %nowhere64 to i32
  %n32 = load i32, ptr %count
  %n = zext i32 %n32 to i64
  %any = icmp ne i64 %n, 0
  br i1 %any, label %row, label %out
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %pr = getelementptr i32, ptr %rows, i64 %i
  %pixel = load i32, ptr %pr
  %y = udiv i32 %pixel, %width
  %above = mul i32 %y, %width
  %x = sub i32 %pixel, %above
  %y64 = zext i32 %y to i64
  %x64 = zext i32 %x to i64
  %y.at = mul i64 %y64, %down
  %x.at = mul i64 %x64, %across
  %my.lines = getelementptr i32, ptr %lines, i64 %y.at
  %my.columns = getelementptr i32, ptr %columns, i64 %x.at
  br label %line
line:
  %a = phi i64 [ 0, %row ], [ %a.next, %line.end ]
  %pl = getelementptr i32, ptr %my.lines, i64 %a
  %base = load i32, ptr %pl
  br label %column
column:
  %c = phi i64 [ 0, %line ], [ %c.next, %column ]
  %pc = getelementptr i32, ptr %my.columns, i64 %c
  %right = load i32, ptr %pc
  %sum = add i32 %base, %right
  %inside = icmp ult i32 %sum, %nowhere
  %place32 = select i1 %inside, i32 %sum, i32 %nowhere
  %place = zext i32 %place32 to i64
  %pf = getelementptr i8, ptr %flags, i64 %place
  store i8 1, ptr %pf
  %c.next = add i64 %c, 1
  %c.on = icmp ult i64 %c.next, %across
  br i1 %c.on, label %column, label %line.end
line.end:
  %a.next = add i64 %a, 1
  %a.on = icmp ult i64 %a.next, %down
  br i1 %a.on, label %line, label %row.end
row.end:
  %i.next = add i64 %i, 1
  %i.on = icmp ult i64 %i.next, %n
  br i1 %i.on, label %row, label %out
out:
  ret void
}

;; collect(flags, numbers {first eight, end, group, none}, places, number, groups): the places whose flags are set, in
;; order, and takes the flags back.  Flags come in eights, most of which are often not set.  Behind the list is `none`,
;; and it is filled up with that to whole groups, which are counted, too.
define void @collect(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %flags = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %numbers = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %to = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %number = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %groups = load ptr, ptr %p4
  %begin = load i64, ptr %numbers
  %q1 = getelementptr i64, ptr %numbers, i64 1
  %end = load i64, ptr %q1
  %q2 = getelementptr i64, ptr %numbers, i64 2
  %size = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %numbers, i64 3
  %none64 = load i64, ptr %q3
  %none = trunc i64 %none64 to i32
  br label %eight
eight:
  %e = phi i64 [ %begin, %entry ], [ %e.next, %eight.end ]
  %e.at = phi i64 [ 0, %entry ], [ %at.end, %eight.end ]
  %first = mul i64 %e, 8
  %pe = getelementptr i8, ptr %flags, i64 %first
  %set = load i64, ptr %pe
  %some = icmp ne i64 %set, 0
  br i1 %some, label %loop, label %eight.end
loop:
  %i = phi i64 [ 0, %eight ], [ %next, %loop ]
  %at = phi i64 [ %e.at, %eight ], [ %then, %loop ]
  %left = phi i64 [ %set, %eight ], [ %rest, %loop ]
  %place = add i64 %first, %i
  %place32 = trunc i64 %place to i32
  %pt = getelementptr i32, ptr %to, i64 %at
  store i32 %place32, ptr %pt
  %one = and i64 %left, 1
  %then = add i64 %at, %one
  %rest = lshr i64 %left, 8
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, 8
  br i1 %on, label %loop, label %cleared
cleared:
  store i64 0, ptr %pe
  br label %eight.end
eight.end:
  %at.end = phi i64 [ %e.at, %eight ], [ %then, %cleared ]
  %e.next = add i64 %e, 1
  %e.on = icmp ult i64 %e.next, %end
  br i1 %e.on, label %eight, label %listed
listed:
  %total = trunc i64 %at.end to i32
  store i32 %total, ptr %number
  %behind = getelementptr i32, ptr %to, i64 %at.end
  store i32 %none, ptr %behind
  br label %fill
fill:
  %f.at = phi i64 [ %at.end, %listed ], [ %f.next, %filling ]
  %over = urem i64 %f.at, %size
  %whole = icmp eq i64 %over, 0
  br i1 %whole, label %out, label %filling
filling:
  %ft = getelementptr i32, ptr %to, i64 %f.at
  store i32 %none, ptr %ft
  %f.next = add i64 %f.at, 1
  br label %fill
out:
  %made = udiv i64 %f.at, %size
  %made32 = trunc i64 %made to i32
  store i32 %made32, ptr %groups
  ret void
}

;; pair(down, across, numbers {height, width, taps down, taps across, places, group, none, room, lists}, scratch, from, to,
;; taps of groups, groups, then for every list rows, number, first): for every tap the pairs of a row's position and the
;; place that the row reaches, in groups of one size, filled up with pairs of `none` and of no place.  Positions of a list
;; count from its first.  A place is the sum of down[tap down, row of the image] and across[tap across, column], either of
;; which is negative where there is none.  `scratch` has room for six lists.
define void @pair(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
entry:
  %down = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %across = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %numbers = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %ys = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %args, i64 4
  %from = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %args, i64 5
  %to = load ptr, ptr %p5
  %p6 = getelementptr ptr, ptr %args, i64 6
  %tapof = load ptr, ptr %p6
  %p7 = getelementptr ptr, ptr %args, i64 7
  %groups = load ptr, ptr %p7
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
  %q7 = getelementptr i64, ptr %numbers, i64 7
  %room = load i64, ptr %q7
  %q8 = getelementptr i64, ptr %numbers, i64 8
  %lists = load i64, ptr %q8
  %xs = getelementptr i32, ptr %ys, i64 %room
  %positions = getelementptr i32, ptr %xs, i64 %room
  %hits = getelementptr i32, ptr %positions, i64 %room
  %bases = getelementptr i32, ptr %hits, i64 %room
  %columns = getelementptr i32, ptr %bases, i64 %room
  br label %list
list:
  %l = phi i64 [ 0, %entry ], [ %l.next, %list.end ]
  %l.at = phi i64 [ 0, %entry ], [ %n, %list.end ]
  %three = mul i64 %l, 3
  %rows.word = add i64 %three, 8
  %rows.ptr = getelementptr ptr, ptr %args, i64 %rows.word
  %rows = load ptr, ptr %rows.ptr
  %count.ptr = getelementptr ptr, ptr %rows.ptr, i64 1
  %count = load ptr, ptr %count.ptr
  %first.ptr = getelementptr ptr, ptr %rows.ptr, i64 2
  %first.at = load ptr, ptr %first.ptr
  %first = load i32, ptr %first.at
  %listed32 = load i32, ptr %count
  %listed = zext i32 %listed32 to i64
  %n = add i64 %l.at, %listed
  %some = icmp ne i64 %listed, 0
  br i1 %some, label %place, label %list.end
place:
  %c = phi i64 [ 0, %list ], [ %c.next, %place ]
  %pr = getelementptr i32, ptr %rows, i64 %c
  %row = load i32, ptr %pr
  %y = udiv i32 %row, %width32
  %above = mul i32 %y, %width32
  %x = sub i32 %row, %above
  %c.at = add i64 %l.at, %c
  %py = getelementptr i32, ptr %ys, i64 %c.at
  store i32 %y, ptr %py
  %px = getelementptr i32, ptr %xs, i64 %c.at
  store i32 %x, ptr %px
  %c32 = trunc i64 %c to i32
  %position = add i32 %first, %c32
  %pp = getelementptr i32, ptr %positions, i64 %c.at
  store i32 %position, ptr %pp
  %c.next = add i64 %c, 1
  %c.on = icmp ult i64 %c.next, %listed
  br i1 %c.on, label %place, label %list.end
list.end:
  %l.next = add i64 %l, 1
  %l.on = icmp ult i64 %l.next, %lists
  br i1 %l.on, label %list, label %listing
listing:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %line, label %out
line:
  %ky = phi i64 [ 0, %listing ], [ %ky.next, %line.end ]
  %line.at = phi i64 [ 0, %listing ], [ %tap.at.end, %line.end ]
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
  %ip = getelementptr i32, ptr %positions, i64 %i
  %ip32 = load i32, ptr %ip
  %ph = getelementptr i32, ptr %hits, i64 %m
  store i32 %ip32, ptr %ph
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
  %k = add i64 %line.tap, %kx
  %k32 = trunc i64 %k to i32
  %tap.base = mul i64 %kx, %width
  %acrosses = getelementptr i32, ptr %across, i64 %tap.base
  %tap.any = icmp ne i64 %m.next, 0
  br i1 %tap.any, label %loop, label %fill
loop:
  %j = phi i64 [ 0, %tap ], [ %j.next, %loop ]
  %at = phi i64 [ %tap.at, %tap ], [ %then, %loop ]
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
  %j.next = add i64 %j, 1
  %j.on = icmp ult i64 %j.next, %m.next
  br i1 %j.on, label %loop, label %fill
fill:
  %f.at = phi i64 [ %tap.at, %tap ], [ %then, %loop ], [ %f.next, %filling ]
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
  %ky.next = add i64 %ky, 1
  %ky.on = icmp ult i64 %ky.next, %taps.down
  br i1 %ky.on, label %line, label %out
out:
  %total = phi i64 [ 0, %listing ], [ %tap.at.end, %line.end ]
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

;; bands(for every band its calls and their number): runs the calls of each band in one thread; bands are independent.
define void @bands(ptr %args, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads) nounwind {
  call void %pool(ptr @band, ptr %args, i64 %stride, i64 %threads)
  ret void
}

define internal void @band(i64 %begin, i64 %end, i64 %slot, ptr %args) nounwind {
entry:
  %any = icmp ult i64 %begin, %end
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %two = mul i64 %i, 2
  %p0 = getelementptr ptr, ptr %args, i64 %two
  %calls = load ptr, ptr %p0
  %p1 = getelementptr ptr, ptr %p0, i64 1
  %number = load i64, ptr %p1
  call void @run(ptr %calls, i64 %number)
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %end
  br i1 %on, label %loop, label %out
out:
  ret void
}
