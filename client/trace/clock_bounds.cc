#include "client/trace/clock_bounds.h"

#include <algorithm>
#include <cstdlib>

namespace outboard::trace {
namespace {

// What the other side says of its clock may be anything; sums of two of these do not overflow.
constexpr int64_t kOffsetMax = int64_t{1} << 61;
constexpr int64_t kDriftPerWindowNs = static_cast<int64_t>(kWindowNs / 1'000'000) * kDriftPpmMax;

int64_t Clamp(int64_t offset_ns) { return std::clamp(offset_ns, -kOffsetMax, kOffsetMax); }

}  // namespace

uint64_t ClockMap::Ours(uint64_t theirs_ns) const {
  if (knots_.empty()) return theirs_ns;
  const auto theirs = static_cast<int64_t>(std::min<uint64_t>(theirs_ns, kOffsetMax));
  const auto after =
      std::upper_bound(knots_.begin(), knots_.end(), theirs,
                       [](int64_t at, const Knot& knot) { return at < knot.theirs_ns; });
  int64_t ours = 0;
  if (after == knots_.begin()) {
    ours = theirs - after->theirs_ns + after->ours_ns;
  } else if (after == knots_.end()) {
    ours = theirs - knots_.back().theirs_ns + knots_.back().ours_ns;
  } else {
    const Knot& before = *(after - 1);
    const auto step = static_cast<__int128>(after->ours_ns - before.ours_ns);
    ours = before.ours_ns + static_cast<int64_t>(step * (theirs - before.theirs_ns) /
                                                 (after->theirs_ns - before.theirs_ns));
  }
  return static_cast<uint64_t>(std::max<int64_t>(ours, 0));
}

ClockBounds::Window& ClockBounds::At(uint64_t at_ns) {
  return windows_.try_emplace(at_ns / kWindowNs, Window{-kOffsetMax, kOffsetMax}).first->second;
}

void ClockBounds::AtMost(uint64_t at_ns, int64_t offset_ns) {
  Window& window = At(at_ns);
  window.most = std::min(window.most, Clamp(offset_ns));
}

void ClockBounds::AtLeast(uint64_t at_ns, int64_t offset_ns) {
  Window& window = At(at_ns);
  window.least = std::max(window.least, Clamp(offset_ns));
}

std::map<uint64_t, ClockBounds::Window> ClockBounds::Tightened() const {
  std::map<uint64_t, Window> windows = windows_;
  const auto tighten = [](const std::pair<const uint64_t, Window>& from,
                          std::pair<const uint64_t, Window>& to) {
    const uint64_t apart = std::max(from.first, to.first) - std::min(from.first, to.first);
    const int64_t drift =
        static_cast<int64_t>(std::min<uint64_t>(apart, 1'000'000)) * kDriftPerWindowNs;
    to.second.most = std::min(to.second.most, from.second.most + drift);
    to.second.least = std::max(to.second.least, from.second.least - drift);
  };
  if (windows.empty()) return windows;
  for (auto it = windows.begin(); std::next(it) != windows.end(); ++it)
    tighten(*it, *std::next(it));
  for (auto it = std::prev(windows.end()); it != windows.begin(); --it)
    tighten(*it, *std::prev(it));
  return windows;
}

ClockBounds ClockBounds::Then(const ClockBounds& next) const {
  ClockBounds sum;
  const std::map<uint64_t, Window> first = Tightened(), second = next.Tightened();
  for (const auto& [index, a] : first) {
    const auto b = second.find(index);
    if (b == second.end()) continue;
    const Window& c = b->second;
    const bool least = a.least != -kOffsetMax && c.least != -kOffsetMax;
    const bool most = a.most != kOffsetMax && c.most != kOffsetMax;
    sum.windows_[index] = {least ? Clamp(a.least + c.least) : -kOffsetMax,
                           most ? Clamp(a.most + c.most) : kOffsetMax};
  }
  return sum;
}

ClockMap ClockBounds::Settle() const {
  ClockMap map;
  map.same_clock = true;
  for (const auto& [index, window] : Tightened()) {
    if (window.least == -kOffsetMax || window.most == kOffsetMax) continue;
    map.known = true;
    map.same_clock = map.same_clock && window.least <= 0 && window.most >= 0;
    map.offset_ns = window.least / 2 + window.most / 2;
    map.error_ns_max = std::max({map.error_ns_max, std::abs(window.most - map.offset_ns),
                                 std::abs(map.offset_ns - window.least)});
    const auto centre = static_cast<int64_t>(index * kWindowNs + kWindowNs / 2);
    const ClockMap::Knot knot{centre + map.offset_ns, centre};
    if (map.knots_.empty() || knot.theirs_ns > map.knots_.back().theirs_ns)
      map.knots_.push_back(knot);
  }
  map.same_clock = map.same_clock && map.known;
  if (map.same_clock) map.knots_.clear();
  return map;
}

}  // namespace outboard::trace
