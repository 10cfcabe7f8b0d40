// Recording of compiler passes and of the rewrite rules that they apply, for debugging.
//
// The main function of a process may set a recorder for a thread (worker/compile/rewrite_log.h
// writes a file); the compiler itself writes no files. Without a recorder, a pass and a rewrite
// cost one pointer test each.
//
// Threads: a recorder is set for one thread and called by it alone. Errors: none; a recorder stores
// its own errors.
#pragma once

#include <string_view>

#include "compiler/ir/uop.h"

namespace outboard {

class RewriteRecorder {
 public:
  virtual ~RewriteRecorder() = default;
  // A pass starts on the graph under `before`, nested in the passes that have not ended. `of`: the
  // tensor values whose kernel the pass transforms; empty if it transforms the whole graph.
  virtual void BeginPass(std::string_view name, Sources of, const UOp* before) = 0;
  // A rule rewrote `before` to `after`, in the innermost pass.
  virtual void Applied(std::string_view rule, const UOp* before, const UOp* after) = 0;
  // The innermost pass has ended with the graph `after`; nullptr: it failed.
  virtual void EndPass(const UOp* after) = 0;
};

// Returns this thread's recorder; nullptr if there is none.
RewriteRecorder* ThreadRecorder();

// Sets this thread's recorder for the lifetime of this object, which the recorder must outlive.
class RecordedThread {
 public:
  explicit RecordedThread(RewriteRecorder* recorder);
  ~RecordedThread();
  RecordedThread(const RecordedThread&) = delete;
  RecordedThread& operator=(const RecordedThread&) = delete;

 private:
  RewriteRecorder* const before_;
};

// Records a pass from its construction to the end of the block:
//   RecordedPass pass("lower", {value}, value);
//   ...
//   return pass.Made(ast);
class RecordedPass {
 public:
  RecordedPass(std::string_view name, Sources of, const UOp* before);
  ~RecordedPass();
  RecordedPass(const RecordedPass&) = delete;
  RecordedPass& operator=(const RecordedPass&) = delete;

  // Sets the result of the pass, and returns it.
  const UOp* Made(const UOp* after) { return made_ = after; }

  // Returns whether a pass of this thread has begun and not ended.
  static bool IsInside();

 private:
  RewriteRecorder* const recorder_;
  const UOp* made_ = nullptr;
};

}  // namespace outboard
