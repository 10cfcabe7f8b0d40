#include "worker/engine/memory_need.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "worker/engine/plans/planned_launches.h"

namespace outboard::worker {
namespace {

constexpr size_t kNamedMax = 3;  // arrays in an error

int64_t Sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// With the number itself: a limit that is missed by a little shows no difference in GiB.
std::string Text(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  return absl::StrFormat("%.1f MiB (%d bytes)", static_cast<double>(bytes) / kMebibyte, bytes);
}

absl::Status LookForRoom(const ExecutionPlan& plan, const UOp* sink,
                         const std::vector<std::vector<int64_t>>& dims_of,
                         const std::vector<DeviceArrayPtr>& inputs,
                         const runtime::Device& device) {
  MemoryNeed need;
  int64_t largest = plan.schedule.arena_bytes;
  int about = plan.largest_temporary;
  for (size_t i = 0; i < dims_of.size(); ++i) {
    if (IsOverwritten(inputs, plan.schedule.over[i])) continue;
    int64_t bytes = ByteWidth(sink->src[i]->dtype);
    for (const int64_t dim : dims_of[i])
      if (__builtin_mul_overflow(bytes, dim, &bytes)) return absl::OkStatus();  // NewArray says so
    need.Add(i, sink->src[i]->dtype, dims_of[i], bytes);
    if (bytes > largest) {
      largest = bytes;
      about = static_cast<int>(i);
    }
  }
  need.AddTemporaries(plan.schedule.arena_bytes);
  for (const schedule::ScheduledBuffer& buffer : plan.schedule.buffers)
    if (!buffer.padded_dims.empty()) need.AddTemporaries(buffer.bytes());
  return AboutResult(need.CheckOn(device), sink, about);
}

}  // namespace

void MemoryNeed::Add(size_t result, DType dtype, std::span<const int64_t> dims, int64_t bytes) {
  bytes_ = Sum(bytes_, bytes);
  arrays_.push_back({result, dtype, dims, bytes});
}

void MemoryNeed::AddTemporaries(int64_t bytes) {
  temporaries_ = Sum(temporaries_, bytes);
  bytes_ = Sum(bytes_, bytes);
}

absl::Status MemoryNeed::CheckOn(const runtime::Device& device) const {
  const int64_t most = device.memory_bytes_max(), used = device.memory_bytes_in_use();
  const int64_t free = std::max<int64_t>(0, most - used);
  if (bytes_ <= free) return absl::OkStatus();
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const Array& array : arrays_)
    largest.emplace_back(array.bytes,
                         absl::StrCat("result ", array.result, ", ", std::string(Name(array.dtype)),
                                      "[", absl::StrJoin(array.dims, ","), "]"));
  if (temporaries_ > 0) largest.emplace_back(temporaries_, "the step's temporary values together");
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (largest.size() > kNamedMax) largest.resize(kNamedMax);
  const std::string& name = device.properties().name;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the step needs ", Text(bytes_), " of memory; free are ", Text(free), ": the limit",
      name.empty() ? "" : absl::StrCat(" on ", name), " is ", Text(most),
      ", and the session's values have ", used, " bytes in use; largest: ",
      absl::StrJoin(largest, ", ", [](std::string* out, const auto& array) {
        absl::StrAppend(out, array.second, ": ", Text(array.first));
      })));
}

absl::StatusOr<std::vector<std::vector<int64_t>>> ResultDims(const UOp* sink,
                                                             std::span<const Binding> bindings) {
  std::vector<std::vector<int64_t>> dims_of;
  for (const UOp* result : sink->src) {
    OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(result->shape, bindings));
    dims_of.push_back(std::move(dims));
  }
  return dims_of;
}

bool IsOverwritten(const std::vector<DeviceArrayPtr>& inputs, int over) {
  return over != schedule::kNoInput && inputs[over].use_count() == 1;
}

absl::Status CheckRoom(const ExecutionPlan& plan, const UOp* sink,
                       const std::vector<std::vector<int64_t>>& dims_of,
                       const std::vector<DeviceArrayPtr>& inputs, const runtime::Device& device,
                       const std::function<void()>& make_room) {
  const absl::Status room = LookForRoom(plan, sink, dims_of, inputs, device);
  if (!absl::IsResourceExhausted(room) || !make_room) return room;
  make_room();
  return LookForRoom(plan, sink, dims_of, inputs, device);
}

}  // namespace outboard::worker
