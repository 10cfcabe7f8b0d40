// Seeing inside: who watches passes and the rules they apply.
//
// A thread's recorder is set by the main of the process that wants to see
// (worker/compile/rewrite_log.h writes a file); the compiler knows no files. Without one, a pass
// and a rewrite cost a look at a pointer each.
//
// Threads: a recorder is set for one thread and called by it alone. Errors: none; a recorder keeps
// its own.
#pragma once

#include <string_view>

#include "compiler/ir/uop.h"

namespace outboard {

class RewriteRecorder {
 public:
  virtual ~RewriteRecorder() = default;
  // A pass starts on the graph under `before`, inside of those that have not ended. `of`: the
  // tensor values whose kernel it works on; empty where it works on everything.
  virtual void BeginPass(std::string_view name, Sources of, const UOp* before) = 0;
  // A rule made `after` of `before`, in the innermost pass.
  virtual void Applied(std::string_view rule, const UOp* before, const UOp* after) = 0;
  // The innermost pass is over; nullptr: it failed.
  virtual void EndPass(const UOp* after) = 0;
};

// This thread's; nullptr: nobody watches.
RewriteRecorder* ThreadRecorder();

// Sets this thread's recorder for as long as it lives. The recorder must live longer.
class RecordedThread {
 public:
  explicit RecordedThread(RewriteRecorder* recorder);
  ~RecordedThread();
  RecordedThread(const RecordedThread&) = delete;
  RecordedThread& operator=(const RecordedThread&) = delete;

 private:
  RewriteRecorder* const before_;
};

// A pass, from here to the end of the block:
//   RecordedPass pass("lower", {value}, value);
//   ...
//   return pass.Made(ast);
class RecordedPass {
 public:
  RecordedPass(std::string_view name, Sources of, const UOp* before);
  ~RecordedPass();
  RecordedPass(const RecordedPass&) = delete;
  RecordedPass& operator=(const RecordedPass&) = delete;

  // What the pass has come to.
  const UOp* Made(const UOp* after) { return made_ = after; }

  // Whether some pass of this thread has begun and not ended.
  static bool IsInside();

 private:
  RewriteRecorder* const recorder_;
  const UOp* made_ = nullptr;
};

}  // namespace outboard
