#include "worker/engine/plans/planned_launches.h"

#include <algorithm>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/failed_node.h"

namespace outboard::worker {

absl::Status AboutResult(const absl::Status& status, const UOp* sink, int result) {
  if (status.ok() || result == kNoResult) return status;
  return AboutNode(status, sink, sink->src[result]);
}

std::vector<int> ResultsOf(const schedule::Schedule& schedule) {
  std::vector<int> results;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
    results.push_back(buffer.kind == schedule::ScheduledBuffer::Kind::kOutput
                          ? static_cast<int>(buffer.index)
                          : kNoResult);
  const auto needed_by = [&](std::span<const int> stored, std::span<const int> read) {
    int first = kNoResult;
    for (const int b : stored)
      if (const int result = results[b]; result != kNoResult)
        first = first == kNoResult ? result : std::min(first, result);
    for (const int b : read)
      if (results[b] == kNoResult) results[b] = first;
  };
  for (auto step = schedule.steps.rbegin(); step != schedule.steps.rend(); ++step) {
    if (step->kind == schedule::ScheduledStep::Kind::kKernel) {
      const schedule::ScheduledKernel& kernel = schedule.kernels[step->index];
      // What is stored has the first slots.
      needed_by(std::span(kernel.buffers).first(kernel.ast->src.size()), kernel.buffers);
    } else if (step->kind == schedule::ScheduledStep::Kind::kStart) {
      for (const int t : schedule.buckets[step->index])
        needed_by({&schedule.transfers[t].receive, 1}, {&schedule.transfers[t].send, 1});
    }
  }
  return results;
}

std::vector<WantedKernel> WantedBy(const schedule::Schedule& schedule) {
  std::vector<WantedKernel> wanted;
  for (size_t i = 0; i < schedule.kernels.size(); ++i)
    if (const int together = schedule.kernels[i].together; together > 0)
      wanted.push_back({.first = i, .copies = together});
  return wanted;
}

std::vector<WantedKernel> InHalves(const std::vector<WantedKernel>& wanted) {
  std::vector<WantedKernel> halves;
  for (const WantedKernel& one : wanted) {
    if (!one.refused) {
      halves.push_back(one);
      continue;
    }
    OB_CHECK(one.copies > 1);
    const int half = one.copies / 2;
    halves.push_back({.first = one.first, .copies = half});
    halves.push_back(
        {.first = one.first + static_cast<size_t>(half), .copies = one.copies - half});
  }
  return halves;
}

std::vector<int> BuffersOf(const schedule::Schedule& schedule, const WantedKernel& one,
                           const runtime::DeviceKernel& kernel) {
  if (one.copies == 1) return schedule.kernels[one.first].buffers;
  std::vector<int> all;
  const auto slots = static_cast<size_t>(kernel.buffer_count() / one.copies);
  for (int copy = 0; copy < one.copies; ++copy) {
    const std::vector<int>& buffers =
        schedule.kernels[one.first + static_cast<size_t>(copy)].buffers;
    OB_CHECK(slots <= buffers.size());
    all.insert(all.end(), buffers.begin(), buffers.begin() + static_cast<int64_t>(slots));
  }
  return all;
}

void NumberByLaunch(const std::vector<WantedKernel>& wanted,
                    std::vector<schedule::ScheduledStep>& steps) {
  absl::flat_hash_map<size_t, int> launch_of;
  for (size_t i = 0; i < wanted.size(); ++i)
    launch_of.emplace(wanted[i].first, static_cast<int>(i));
  std::erase_if(steps, [&](schedule::ScheduledStep& step) {
    if (step.kind != schedule::ScheduledStep::Kind::kKernel) return false;
    const auto launch = launch_of.find(static_cast<size_t>(step.index));
    if (launch != launch_of.end()) step.index = launch->second;
    return launch == launch_of.end();
  });
}

}  // namespace outboard::worker
