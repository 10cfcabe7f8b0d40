#include "worker/engine/planned_launches.h"

#include <algorithm>

#include "base/check.h"

namespace outboard::worker {

std::vector<int> ResultsOf(const schedule::Schedule& schedule) {
  std::vector<int> results;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
    results.push_back(buffer.kind == schedule::ScheduledBuffer::Kind::kOutput
                          ? static_cast<int>(buffer.index)
                          : kNoResult);
  for (size_t k = schedule.kernels.size(); k-- > 0;) {
    const std::vector<int>& buffers = schedule.kernels[k].buffers;
    int first = kNoResult;  // of what is stored, which has the first slots
    for (size_t slot = 0; slot < schedule.kernels[k].ast->src.size(); ++slot)
      if (const int result = results[buffers[slot]]; result != kNoResult)
        first = first == kNoResult ? result : std::min(first, result);
    for (const int b : buffers)
      if (results[b] == kNoResult) results[b] = first;
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

std::vector<WantedKernel> OneByOne(const std::vector<WantedKernel>& wanted) {
  std::vector<WantedKernel> single;
  for (const WantedKernel& one : wanted) {
    if (!one.refused) single.push_back(one);
    for (int copy = 0; one.refused && copy < one.copies; ++copy)
      single.push_back({.first = one.first + static_cast<size_t>(copy)});
  }
  return single;
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

}  // namespace outboard::worker
