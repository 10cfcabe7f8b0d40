#include "worker/engine/trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace outboard::worker {

void ExecutorTrace::FrameCame(uint64_t seq) {
  if (seq == 0) return;
  came_seq_ = seq;
  came_ns_ = Now();
}

ExecutorTrace::Pending* ExecutorTrace::Push(std::string_view name, uint64_t begin_ns) {
  if (spans_.size() >= kSpansMax) {
    ++dropped_;
    return nullptr;
  }
  Pending& pending = spans_.emplace_back();
  pending.span.set_where(proto::Span::EXECUTOR);
  pending.span.set_name(std::string(name.substr(0, kTextBytesMax)));
  pending.span.set_seq(item_);
  pending.span.set_begin_ns(begin_ns);
  const uint64_t now = Now();
  pending.span.set_duration_ns(now - std::min(begin_ns, now));
  return &pending;
}

void ExecutorTrace::Add(std::string_view name, uint64_t begin_ns, std::string_view detail) {
  if (Pending* const pending = Push(name, begin_ns); pending != nullptr)
    pending->span.set_detail(std::string(detail.substr(0, kTextBytesMax)));
}

void ExecutorTrace::AddKernel(const std::string& name, const std::string& opts, uint64_t begin_ns,
                              int64_t flops, int64_t bytes) {
  Pending* const pending = Push(name, begin_ns);
  if (pending == nullptr) return;
  pending->span.set_detail(opts);
  pending->flops = flops;
  pending->bytes = bytes;
}

void ExecutorTrace::DescribeKernel(Pending& pending) {
  const std::string name = pending.span.name();
  const std::string opts = pending.span.detail();
  const size_t loop = std::min(name.find(" loop "), name.size());
  const size_t reads = std::min(name.find(" reads "), name.size());
  const size_t out = std::min(name.rfind("out ", 0) == 0 ? size_t{4} : 0, loop);
  const std::string results = name.substr(out, loop - out);
  std::string loops = name.substr(loop, std::max(reads, loop) - loop);  // " loop 25"
  if (loops == " loop ") loops.clear();
  const double ns = static_cast<double>(std::max<uint64_t>(pending.span.duration_ns(), 1));
  pending.span.set_name(absl::StrCat("kernel ", results.empty() ? "1" : results, loops));
  pending.span.set_detail(absl::StrFormat("%.1f GFLOP/s, %.1f GB/s, Opts %s,%s",
                                          static_cast<double>(pending.flops) / ns,
                                          static_cast<double>(pending.bytes) / ns,
                                          opts.empty() ? "of the heuristic" : opts,
                                          name.substr(reads))
                              .substr(0, kTextBytesMax));
}

void ExecutorTrace::Take(proto::Done& done) {
  for (Pending& pending : spans_) {
    if (pending.flops >= 0) DescribeKernel(pending);
    *done.add_spans() = std::move(pending.span);
  }
  spans_.clear();
  done.set_spans_dropped(std::exchange(dropped_, 0));
  proto::Passage& passage = *done.add_passages();
  passage.set_where(proto::Span::EXECUTOR);
  passage.set_seq(std::exchange(came_seq_, 0));
  passage.set_received_ns(std::exchange(came_ns_, 0));
  passage.set_sent_ns(Now());
}

}  // namespace outboard::worker
