#include "worker/engine/memory_need.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

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

}  // namespace outboard::worker
