#include "compiler/optimize/threads/transposed.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/divide_up.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/long_rows.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kValuesMax = 64;         // of a thread, in registers
// Of a multiprocessor, before a thread has several values: a kernel with fewer waits for memory
// once, and not for the sectors.
constexpr double kThreadsLeast = kWarpThreads;
constexpr int kPlaces = 8;                 // of a warp, that are counted
// A warp's access takes as long to issue as so many sectors to arrive, about: accesses of 4 bytes
// a thread have four, and are slower than those of 16 bytes, of sixteen.
constexpr double kSectorsOfAccess = 1;

bool In(RangeSet set, int range) { return set >> range & 1; }

// An access at `first` + the sum of strides * ranges, in elements of so many bytes.
struct Strided {
  int64_t bytes = 1, first = 0;
  std::vector<int64_t> strides;  // by output range
};

std::vector<Strided> StridedOf(const LoopNest& kernel, optimize::LoopCost& cost) {
  std::vector<Strided> out;
  for (const Access& access : cost.bodies().back().accesses) {
    if (access.irregular != 0) continue;
    Strided strided{.bytes = ByteWidth(access.index->src[0]->dtype),
                    .first = static_cast<int64_t>(cost.FormOf(access.index->src[1]).constant)};
    for (int r = 0; r < kernel.parallel_count; ++r)
      strided.strides.push_back(cost.ConstantStride(access, r));
    out.push_back(std::move(strided));
  }
  return out;
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
  Counter(const LoopNest& kernel, std::vector<Strided> accesses)
      : kernel_(kernel), accesses_(std::move(accesses)) {}

  double CostOf(const std::vector<RangePart>& parts) {
    double cost = 0, elements = 0;
    for (int place = 0; place < kPlaces; ++place) {
      const std::vector<int64_t> base = BaseOf(parts, place);
      double inside = 1;
      for (const RangePart& part : parts)
        inside *= static_cast<double>(std::min(part.values * part.threads,
                                               Extent(part.range) - Base(base, part)));
      elements += inside;
      for (const Strided& access : accesses_) cost += CostOf(access, parts, base);
    }
    return cost / elements;
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[static_cast<size_t>(range)].extent; }
  static int64_t Base(const std::vector<int64_t>& base, const RangePart& part) {
    return base[static_cast<size_t>(part.range)];
  }

  // The first values of a warp's ranges: different ones of the tiles of each.
  std::vector<int64_t> BaseOf(const std::vector<RangePart>& parts, int place) const {
    std::vector<int64_t> base;
    for (int r = 0; r < kernel_.parallel_count; ++r) {
      int64_t step = 1;
      for (const RangePart& part : parts)
        if (part.range == r) step = part.values * part.threads;
      base.push_back(int64_t{place} * (2 * r + 1) % ((Extent(r) + step - 1) / step) * step);
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
  const std::vector<int> across = RangesAcross(kernel, cost, stores, along);
  if (across.empty()) return std::nullopt;
  int64_t narrowest = target.vector_bytes;
  for (const Access& access : stores.accesses)
    narrowest = std::min<int64_t>(narrowest, ByteWidth(access.index->src[0]->dtype));
  const int64_t multiprocessors = std::max<int64_t>(target.multiprocessors, 1);
  const double threads_least = kThreadsLeast * static_cast<double>(multiprocessors);
  Counter counter(kernel, StridedOf(kernel, cost));
  std::optional<std::vector<RangePart>> best;
  double least = 0;
  const auto consider = [&](const std::vector<RangePart>& parts) {
    int64_t values = 1;
    for (const RangePart& part : parts) {
      if (part.threads > 1 && part.values * (part.threads / 2) >= extent(part.range)) return;
      values *= part.values;
    }
    if (values > kValuesMax ||
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
        for (int third = -1; third < kernel.parallel_count; ++third) {
          if (third == along || third == other) continue;
          for (int64_t left = third < 0 ? 1 : 2; left <= (third < 0 ? 1 : 8); left *= 2)
            for (int64_t rows = 1; rows * left <= kWarpThreads; rows *= 2)
            {
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
