#include "compiler/optimize/threads/transposed.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/divide_up.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/long_rows.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kValuesMax = 64;         // of a thread, in registers
// And of all accesses together, or a multiprocessor would have few warps.
constexpr int64_t kValuesOfAccessesMax = 192;
// Of a multiprocessor, before a thread has several values: a kernel with fewer waits for memory
// once, and not for the sectors.
constexpr double kThreadsLeast = kWarpThreads;
// Of a warp, that are counted: so many, or fewer where there are many candidates and accesses.
constexpr int64_t kPlacesMax = 8, kCountedMax = 20'000;
// Other ranges that are tried, the longest; and accesses, the most frequent: graphs may have
// hundreds of each.
constexpr size_t kAcrossMax = 2, kThirdsMax = 3, kAccessesMax = 8;
// A warp's access takes as long to issue as so many sectors to arrive, about: accesses of 4 bytes
// a thread have four, and are slower than those of 16 bytes, of sixteen.
constexpr double kSectorsOfAccess = 1;

bool In(RangeSet set, int range) { return set >> range & 1; }

// Accesses that read or write element `first` + (stride of each output range) * (its value) of an
// array whose elements have `bytes`; how many of them the kernel has.
struct Strided {
  int64_t bytes = 1, first = 0;
  std::vector<int64_t> strides;  // by output range
  double count = 1;
};

// Those that lie alike in their sectors are one, with their number.
std::vector<Strided> StridedOf(const LoopNest& kernel, optimize::LoopCost& cost) {
  std::vector<Strided> out;
  absl::flat_hash_map<std::vector<int64_t>, size_t> known;
  for (const Access& access : cost.bodies().back().accesses) {
    if (access.irregular != 0) continue;
    Strided strided{.bytes = ByteWidth(access.index->src[0]->dtype),
                    .first = static_cast<int64_t>(cost.FormOf(access.index->src[1]).constant)};
    for (int r = 0; r < kernel.parallel_count; ++r)
      strided.strides.push_back(cost.ConstantStride(access, r));
    const int64_t in_sector = kSectorBytes / strided.bytes;
    strided.first = (strided.first % in_sector + in_sector) % in_sector;
    std::vector<int64_t> key = strided.strides;
    key.push_back(strided.bytes);
    key.push_back(strided.first);
    const auto [at, is_new] = known.emplace(std::move(key), out.size());
    if (is_new)
      out.push_back(std::move(strided));
    else
      ++out[at->second].count;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Strided& a, const Strided& b) { return a.count > b.count; });
  if (out.size() > kAccessesMax) out.resize(kAccessesMax);
  return out;
}

// The ranges of the largest extents, so many at most.
std::vector<int> Longest(const LoopNest& kernel, std::vector<int> ranges, size_t most) {
  std::stable_sort(ranges.begin(), ranges.end(), [&](int a, int b) {
    return kernel.ranges[static_cast<size_t>(a)].extent >
           kernel.ranges[static_cast<size_t>(b)].extent;
  });
  if (ranges.size() > most) ranges.resize(most);
  return ranges;
}

// Elements along `part` that one access may have: a power of two.
int64_t WidthAlong(const Strided& access, const RangePart& part) {
  if (access.strides[static_cast<size_t>(part.range)] != 1) return 1;
  auto width = static_cast<uint64_t>(std::min(part.values, 16 / access.bytes));
  const auto limit = [&](int64_t number) {
    if (number != 0)
      width = std::min(width, uint64_t{1} << std::countr_zero(static_cast<uint64_t>(number)));
  };
  limit(access.first);
  for (size_t r = 0; r < access.strides.size(); ++r)
    if (static_cast<int>(r) != part.range) limit(access.strides[r]);
  return static_cast<int64_t>(width);
}

// Sectors and accesses of warps that have these parts, for each element.
class Counter {
 public:
  // Of so many candidates.
  Counter(const LoopNest& kernel, std::vector<Strided> accesses, int64_t candidates)
      : kernel_(kernel),
        accesses_(std::move(accesses)),
        places_(std::clamp(kCountedMax / (candidates * static_cast<int64_t>(accesses_.size() + 1)),
                           int64_t{1}, kPlacesMax)) {}

  double CostOf(const std::vector<RangePart>& parts) {
    double cost = 0, elements = 0;
    for (int64_t place = 0; place < places_; ++place) {
      const std::vector<int64_t> base = BaseOf(parts, place);
      double inside = 1;
      for (const RangePart& part : parts)
        inside *= static_cast<double>(std::min(part.values * part.threads,
                                               Extent(part.range) - Base(base, part)));
      elements += inside;
      for (const Strided& access : accesses_) cost += access.count * CostOf(access, parts, base);
    }
    return cost / elements;
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[static_cast<size_t>(range)].extent; }
  static int64_t Base(const std::vector<int64_t>& base, const RangePart& part) {
    return base[static_cast<size_t>(part.range)];
  }

  // The first values of a warp's ranges: different ones of the tiles of each.
  std::vector<int64_t> BaseOf(const std::vector<RangePart>& parts, int64_t place) const {
    std::vector<int64_t> base;
    for (int r = 0; r < kernel_.parallel_count; ++r) {
      int64_t step = 1;
      for (const RangePart& part : parts)
        if (part.range == r) step = part.values * part.threads;
      base.push_back(place * (2 * r + 1) % ((Extent(r) + step - 1) / step) * step);
    }
    return base;
  }

  double CostOf(const Strided& access, const std::vector<RangePart>& parts,
                const std::vector<int64_t>& base) {
    int64_t first = access.first;
    for (size_t r = 0; r < base.size(); ++r) first += access.strides[r] * base[r];
    // The accesses of a thread, one after the other: what it has of the ranges, less what is in one
    // access. Lanes beyond an extent access nothing.
    std::vector<int64_t> accesses = {0}, lanes = {0};
    int64_t width = 1;
    for (const RangePart& part : parts) {
      const int64_t stride = access.strides[static_cast<size_t>(part.range)],
                    along = WidthAlong(access, part), last = Extent(part.range) - Base(base, part);
      width = std::max(width, along);
      Spread(accesses, part.values / along, stride == 0 ? 0 : stride * along);
      const int64_t inside = std::min(part.threads, (last + part.values - 1) / part.values);
      Spread(lanes, inside, stride * part.values);
    }
    // An element that does not depend on a range is loaded once.
    std::sort(accesses.begin(), accesses.end());
    accesses.erase(std::unique(accesses.begin(), accesses.end()), accesses.end());
    double cost = 0;
    for (const int64_t own : accesses) {
      touched_.clear();
      for (const int64_t lane : lanes) {
        const int64_t begin = (first + own + lane) * access.bytes;
        for (int64_t byte = begin; byte < begin + width * access.bytes; byte += access.bytes)
          touched_.push_back(byte / kSectorBytes);
      }
      std::sort(touched_.begin(), touched_.end());
      cost += kSectorsOfAccess + static_cast<double>(std::unique(touched_.begin(), touched_.end()) -
                                                     touched_.begin());
    }
    return cost;
  }

  static void Spread(std::vector<int64_t>& places, int64_t count, int64_t apart) {
    const size_t size = places.size();
    for (int64_t i = 1; i < count; ++i)
      for (size_t k = 0; k < size; ++k) places.push_back(places[k] + i * apart);
  }

  const LoopNest& kernel_;
  const std::vector<Strided> accesses_;
  const int64_t places_;
  std::vector<int64_t> touched_;  // sectors of one access
};

// Warps are added to the shorter side of the block.
void AddWarps(std::vector<RangePart>& parts, const LoopNest& kernel, int64_t multiprocessors) {
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  const auto span = [](const RangePart& part) { return part.values * part.threads * part.warps; };
  int64_t tiles = 1;  // of all warps
  for (int r = 0; r < kernel.parallel_count; ++r) {
    const auto part = std::ranges::find(parts, r, &RangePart::range);
    tiles *= part == parts.end() ? extent(r) : DivideUp(extent(r), span(*part));
  }
  const int64_t warps = std::min(kThreadsWanted / kWarpThreads, tiles / multiprocessors);
  for (int64_t have = 1; 2 * have <= warps; have *= 2) {
    RangePart* shorter = nullptr;
    for (RangePart& part : parts)
      if (span(part) < extent(part.range) && (shorter == nullptr || span(part) < span(*shorter)))
        shorter = &part;
    if (shorter == nullptr) return;
    shorter->warps *= 2;
  }
}

// The range in which most stores are consecutive; -1: none.
int StoredAlong(const LoopNest& kernel, optimize::LoopCost& cost, const Body& stores) {
  int best = -1;
  double most = 0;
  for (int r = 0; r < kernel.parallel_count; ++r) {
    double count = 0;
    for (const Access& access : stores.accesses)
      if (access.store && In(access.deps, r) && cost.ConstantStride(access, r) == 1)
        count += cost.Points(access.deps);
    if (count > most) most = count, best = r;
  }
  return best;
}

// Powers of two up to what fills an access of 16 bytes, that divide the extent.
std::vector<int64_t> ValuesOf(int64_t extent, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t values = 1; values <= most && extent % values == 0; values *= 2)
    out.push_back(values);
  return out;
}

}  // namespace

std::vector<int> RangesAcross(const LoopNest& kernel, optimize::LoopCost& cost, const Body& body,
                              int along) {
  std::vector<int> out;
  for (int r = 0; r < kernel.parallel_count; ++r)
    if (r != along && std::ranges::any_of(body.accesses, [&](const Access& access) {
          return !access.store && In(access.deps, along) && In(access.deps, r) &&
                 cost.ConstantStride(access, r) == 1 && cost.ConstantStride(access, along) != 1 &&
                 2 * cost.Points(access.deps) >= body.points;
        }))
      out.push_back(r);
  return out;
}

std::optional<std::vector<RangePart>> ChooseTransposed(const LoopNest& kernel,
                                                       const Target& target,
                                                       optimize::LoopCost& cost, int along) {
  const Body& stores = cost.bodies().back();
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  if (const int stored = StoredAlong(kernel, cost, stores); stored >= 0) along = stored;
  const std::vector<int> across =
      Longest(kernel, RangesAcross(kernel, cost, stores, along), kAcrossMax);
  if (across.empty()) return std::nullopt;
  int64_t narrowest = target.vector_bytes;
  for (const Access& access : stores.accesses)
    narrowest = std::min<int64_t>(narrowest, ByteWidth(access.index->src[0]->dtype));
  const int64_t multiprocessors = std::max<int64_t>(target.multiprocessors, 1);
  const double threads_least = kThreadsLeast * static_cast<double>(multiprocessors);
  std::vector<int> thirds;
  for (int r = 0; r < kernel.parallel_count; ++r)
    if (r != along && extent(r) > 1) thirds.push_back(r);
  thirds = Longest(kernel, std::move(thirds), kThirdsMax);
  std::sort(thirds.begin(), thirds.end());
  thirds.insert(thirds.begin(), -1);
  constexpr int64_t kSizes = 16, kShapes = 14;  // of values, and of threads with a third range
  Counter counter(kernel, StridedOf(kernel, cost),
                  static_cast<int64_t>(across.size() * thirds.size()) * kSizes * kShapes);
  std::optional<std::vector<RangePart>> best;
  double least = 0;
  const auto consider = [&](const std::vector<RangePart>& parts) {
    int64_t values = 1;
    for (const RangePart& part : parts) {
      if (part.threads > 1 && part.values * (part.threads / 2) >= extent(part.range)) return;
      values *= part.values;
    }
    if (values > kValuesMax ||
        values * static_cast<int64_t>(stores.accesses.size()) > kValuesOfAccessesMax ||
        (values > 1 && stores.points / static_cast<double>(values) < threads_least))
      return;
    const double found = counter.CostOf(parts);
    constexpr double kBetter = 0.995;  // or the first one stays, of the fewest values
    if (!best || found < kBetter * least) least = found, best = parts;
  };
  const int64_t most = std::min<int64_t>(8, target.vector_bytes / narrowest);
  for (const int other : across)
    for (const int64_t own : ValuesOf(extent(along), most))
      for (const int64_t others : ValuesOf(extent(other), most))
        for (const int third : thirds) {
          if (third == other) continue;
          for (int64_t left = third < 0 ? 1 : 2; left <= (third < 0 ? 1 : 8); left *= 2)
            for (int64_t rows = 1; rows * left <= kWarpThreads; rows *= 2) {
              std::vector<RangePart> parts = {{along, own, kWarpThreads / left / rows},
                                              {other, others, rows}};
              if (third >= 0) parts.push_back({third, 1, left});
              consider(parts);
            }
        }
  if (best) AddWarps(*best, kernel, multiprocessors);
  return best;
}

}  // namespace outboard::codegen
