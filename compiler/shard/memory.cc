#include "compiler/shard/memory.h"

#include <algorithm>
#include <utility>

namespace outboard::shard {

int MemoryTrace::AddInput(Bytes bytes, bool donated) {
  entries_.push_back({.value = {.bytes = bytes.most}, .is_input = true, .stays = !donated});
  if (!donated) kept_bytes_ += bytes.least;
  return static_cast<int>(entries_.size()) - 1;
}

int MemoryTrace::Add(Value value) {
  entries_.push_back({.value = std::move(value)});
  return static_cast<int>(entries_.size()) - 1;
}

void MemoryTrace::Keep(int value, Bytes bytes) {
  Entry& entry = entries_[value];
  if (entry.stays) return;  // an input that is not donated, or a result twice: one array
  entry.stays = true;
  if (entry.value.bytes == 0) {
    entry.value.bytes = bytes.most;
    entry.replaces = true;
  }
  kept_bytes_ += bytes.least;
}

double MemoryTrace::peak_bytes() const {
  const int count = static_cast<int>(entries_.size());
  // When a value is read for the last time: by a stored one when that is made, by another one when
  // that is read itself.
  std::vector<int> last(entries_.size());
  for (int i = 0; i < count; ++i) last[i] = entries_[i].stays ? count : i;
  for (int i = count - 1; i >= 0; --i) {
    const int reads = entries_[i].value.bytes > 0 ? i : last[i];
    for (const int source : entries_[i].value.sources)
      last[source] = std::max(last[source], reads);
  }
  std::vector<double> freed(entries_.size() + 1);
  double now = 0, peak = 0;
  for (int i = 0; i < count; ++i) {
    if (entries_[i].is_input) now += entries_[i].value.bytes;
    freed[last[i]] += entries_[i].value.bytes;
  }
  for (int i = 0; i < count; ++i) {
    const Entry& entry = entries_[i];
    if (entry.is_input || entry.value.bytes == 0) continue;
    double more = entry.value.bytes;
    if (entry.replaces && freed[i] >= more) {
      freed[i] -= more;  // as much goes while this comes
      more = 0;
    }
    peak = std::max(peak, now + more + entry.value.within);
    now += more - freed[i];
  }
  return std::max(peak, now);
}

}  // namespace outboard::shard
