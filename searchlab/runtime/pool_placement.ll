;; Where a worker wakes up, which takes the place of ${PLACEMENT} in pool.ll on Linux.
;;
;; Linux often wakes a thread on the CPU of the one that called it, even if another is idle, and there it waits for
;; milliseconds.  So a sleeper that is about to be called is forbidden the caller's CPU until it is awake.  Both functions
;; run under the mutex of the mailbox; where moving threads is not possible they do nothing.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @sched_getcpu()
declare i32 @pthread_getaffinity_np(ptr, i64, ptr)
declare i32 @pthread_setaffinity_np(ptr, i64, ptr)
define internal void @send_away(ptr %box) nounwind {
entry:
  %elsewhere = alloca %opaque, align 16
  %away.p = getelementptr %box, ptr %box, i64 0, i32 7
  %thread.p = getelementptr %box, ptr %box, i64 0, i32 6
  %mask = getelementptr %box, ptr %box, i64 0, i32 5
  %thread = load ptr, ptr %thread.p
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, 1024
  br i1 %known, label %begin, label %out
begin:
  %away = load i32, ptr %away.p
  %saved = icmp ne i32 %away, 0
  br i1 %saved, label %move, label %save
save:
  %failed = call i32 @pthread_getaffinity_np(ptr %thread, i64 128, ptr %mask)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %move, label %out
move:
  store i32 1, ptr %away.p
  call void @llvm.memcpy.p0.p0.i64(ptr %elsewhere, ptr %mask, i64 128, i1 false)
  %index = lshr i32 %cpu, 3
  %byte = getelementptr i8, ptr %elsewhere, i32 %index
  %shift = and i32 %cpu, 7
  %wide = shl i32 1, %shift
  %bit = trunc i32 %wide to i8
  %keep = xor i8 %bit, -1
  %old = load i8, ptr %byte
  %new = and i8 %old, %keep
  store i8 %new, ptr %byte
  %moved = call i32 @pthread_setaffinity_np(ptr %thread, i64 128, ptr %elsewhere)
  br label %out
out:
  ret void
}
define internal void @settle(ptr %box) nounwind {
entry:
  %away.p = getelementptr %box, ptr %box, i64 0, i32 7
  %away = load i32, ptr %away.p
  %moved = icmp ne i32 %away, 0
  br i1 %moved, label %restore, label %out
restore:
  store i32 0, ptr %away.p
  %thread.p = getelementptr %box, ptr %box, i64 0, i32 6
  %mask = getelementptr %box, ptr %box, i64 0, i32 5
  %thread = load ptr, ptr %thread.p
  %r = call i32 @pthread_setaffinity_np(ptr %thread, i64 128, ptr %mask)
  br label %out
out:
  ret void
}
