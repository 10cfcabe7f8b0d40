#include <cmath>
#include <cstdlib>
#include <utility>

#include "compiler/optimize/vectors/vector_chooser.h"

namespace outboard::codegen {

using optimize::RegisterTile;

namespace {

constexpr double kCodeMax = 1600;  // operations written out in one tile, so that LLVM stays quick

}  // namespace

double VectorChooser::Streams(const Access& access, const RegisterTile& t) {
  double streams = In(access.deps, output_lanes_) ? static_cast<double>(t.vectors) : 1;
  for (const auto& [range, count] : {std::make_pair(t.a, t.ta), std::make_pair(t.b, t.tb)}) {
    if (!In(access.deps, range)) continue;
    const int64_t stride = std::abs(ConstantStride(access, range));
    if (stride == 0 || stride * count > loop_cost_.lanes()) streams *= static_cast<double>(count);
  }
  return streams;
}

void VectorChooser::SetCost(const Body& b, size_t nodes, int v, RegisterTile& t) {
  t.cost = -1;
  const double results = Copies(b.ranges, t);
  double loads = 0, ops = 0, held = 1e9;
  for (const Access& access : b.accesses) {
    const double copies = Copies(access.deps, t);
    loads += copies * AccessCost(access, v);
    if (In(access.deps, v) && !Copied(access, v)) loads += costs_.stream * Streams(access, t);
    if (access.gated) loads += costs_.gate * Copies(kernel_.DepsOf(access.node->src[1]), t);
    held = std::min(held, copies);
  }
  for (const RangeSet deps : b.ops) ops += Copies(deps, t);
  for (const RangeSet deps : b.slow_ops) ops += Copies(deps, t) * costs_.library_call;
  const double registers =
      results * static_cast<double>(nodes) + (b.accesses.empty() ? 0 : held) + 1;
  if (registers > target_.vector_registers - 3) return;
  const Body& last = stores();
  const double code =
      loads + ops +
      Copies(last.ranges, t) * static_cast<double>(last.ops.size() + last.accesses.size());
  if (results > 1 && code > kCodeMax) return;
  t.cost = (loads + ops) / results;
  t.code = code;
  if (t.a >= 0) t.AddRest(Extent(t.a), t.ta, code);
  if (t.b >= 0) t.AddRest(Extent(t.b), t.tb, code);
  if (output_lanes_ >= 0) t.AddRest(VectorsOf(output_lanes_), t.vectors, code);
}

void VectorChooser::ChooseTile() {
  if (main_ == kernel_.groups.size()) {
    PlanElementwise();
    return;
  }
  const Body& b = body(main_);
  const size_t nodes = kernel_.groups[main_].nodes.size();
  const int v = In(b.ranges, output_lanes_) ? output_lanes_ : group_lanes_[main_];
  int64_t vectors_max = 1, vectors_min = 1;
  if (In(b.ranges, output_lanes_)) {
    vectors_min = std::max<int64_t>(1, WholeRows(output_lanes_));
    vectors_max = std::max(vectors_min, std::min<int64_t>(4, VectorsOf(output_lanes_)));
  }
  // `fastest` as if LLVM took no time. It decides how sums are divided, so that their bits do not
  // depend on that time; and copies, which are made for its tile.
  RegisterTile best, fastest;
  best.cost = fastest.cost = 1e300;
  const double steps = b.points / (In(b.ranges, v) ? LanesFor(v) : 1);
  const int outputs = kernel_.parallel_count;
  const auto tiled = [&](int r) { return r != output_lanes_ && In(b.ranges, r) && Extent(r) > 1; };
  const auto counts = [&](int r) { return std::min<int64_t>(Extent(r), 12); };
  // Inner ranges first, for what lies close together; a little more than nothing has to be gained
  // for a second one, which is more code.
  const auto consider = [&](const RegisterTile& choice) {
    for (int64_t vectors = vectors_min; vectors <= vectors_max; vectors += vectors_min) {
      // A long reduction is copied for fewer vectors at a time.
      if (vectors > vectors_min && CopyBytes(output_lanes_, vectors) > copy_bytes_max_) break;
      RegisterTile t = choice;
      t.vectors = vectors;
      SetCost(b, nodes, v, t);
      if (t.cost < 0) continue;
      if (t.cost < fastest.cost * 0.99) fastest = t;
      t.cost += code_price_ * t.code / steps;
      if (t.cost < best.cost * 0.99) best = t;
    }
  };
  consider({});
  for (int a = outputs; a-- > 0;)
    for (int64_t ta = 2; tiled(a) && ta <= counts(a); ++ta) consider({a, -1, ta});
  for (int c = outputs; c-- > 0;)
    for (int a = c; tiled(c) && a-- > 0;)
      for (int64_t ta = 2; tiled(a) && ta <= counts(a); ++ta)
        for (int64_t tc = 2; tc <= counts(c); ++tc) consider({a, c, ta, tc});
  if (fastest.cost > 1e299) best = fastest = {.vectors = vectors_min};
  if (!copyable_.empty()) best = fastest;
  if (output_lanes_ >= 0 && !In(b.ranges, output_lanes_)) {
    fastest.vectors = 2;
    best.vectors = SideBySide(2);
  }
  for (const int range : {best.a, best.b})
    if (range >= 0) tile_rows_ |= RangeSet{1} << range;
  for (const int range : {best.a, best.b, output_lanes_})
    if (range >= 0) Upcast(range, best.CountIn(range, output_lanes_));
  fastest_ = fastest;
}

int64_t VectorChooser::SideBySide(int64_t most) const {
  const Body& b = stores();
  auto size = static_cast<double>(b.ops.size() + b.accesses.size() + 8 * b.slow_ops.size());
  if (kernel_.groups.empty())
    for (const UOp* const node : kernel_.nodes)
      if (node->op == Op::kThreefry) size += costs_.threefry;
  return optimize::VectorsSideBySide(most, size, b.points / LanesFor(output_lanes_), code_price_);
}

void VectorChooser::PlanElementwise() {
  if (output_lanes_ < 0) return;
  // A gather along the lanes reads whole cache lines for one element each; where another range
  // walks along those lines, some steps of it are taken together.
  for (const Access& access : stores().accesses) {
    if (access.store ||
        AccessCost(access, output_lanes_) < costs_.load_per_lane * LanesFor(output_lanes_))
      continue;
    for (const auto& [term, coefficient] : loop_cost_.FormOf(access.index->src[1]).terms) {
      if (coefficient != 1 || term->op != Op::kRange || stores().ops.size() > 16) continue;
      const int range = kernel_.IndexOf(term);
      if (range == output_lanes_ || range >= kernel_.parallel_count) continue;
      Upcast(range, SideBySide(16));
      return;
    }
  }
  const size_t size = stores().ops.size() + 8 * stores().slow_ops.size();
  const int64_t rows = std::max<int64_t>(1, WholeRows(output_lanes_));
  const int64_t wanted = size <= 16 ? 4 : size <= 48 ? 2 : 1;
  Upcast(output_lanes_, rows * SideBySide(std::max<int64_t>(1, wanted / rows)));
}

}  // namespace outboard::codegen
