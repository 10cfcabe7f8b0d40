#include "compiler/rewrite/recorder.h"

namespace outboard {
namespace {

thread_local RewriteRecorder* thread_recorder = nullptr;
thread_local int passes_inside = 0;

}  // namespace

RewriteRecorder* ThreadRecorder() { return thread_recorder; }

RecordedThread::RecordedThread(RewriteRecorder* recorder) : before_(thread_recorder) {
  thread_recorder = recorder;
}
RecordedThread::~RecordedThread() { thread_recorder = before_; }

RecordedPass::RecordedPass(std::string_view name, Sources of, const UOp* before)
    : recorder_(thread_recorder) {
  if (recorder_ == nullptr) return;
  ++passes_inside;
  recorder_->BeginPass(name, of, before);
}

RecordedPass::~RecordedPass() {
  if (recorder_ == nullptr) return;
  --passes_inside;
  recorder_->EndPass(made_);
}

bool RecordedPass::IsInside() { return passes_inside > 0; }

}  // namespace outboard
