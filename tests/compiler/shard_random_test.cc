// Random graphs on meshes, through the pass and a group of interpreted ranks, against one device.
//
//   OUTBOARD_SHARD_GRAPHS  how many graphs (200)        OUTBOARD_RANDOM_SEED  the first one's seed
//   (fresh)
//
// Inputs lie anyhow, results are wanted anyhow, and the graphs have LAYOUTs of their own.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "tests/compiler/random_graph.h"
#include "tests/compiler/random_values.h"
#include "tests/compiler/shard_check.h"

namespace outboard::test {
namespace {

using shard::Layout;
using shard::Mesh;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

const std::vector<Mesh>& Meshes() {
  static const auto* const meshes = new std::vector<Mesh>{{{2}}, {{3}}, {{4}}, {{2, 2}}, {{2, 3}}};
  return *meshes;
}

bool HasSymbolicHint(const UOp* sink) {
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kLayout && LayoutOf(node).dim() >= 0 &&
        !node->shape[LayoutOf(node).dim()].is_const())
      return true;
  return false;
}

// Two hints on one value may want one mesh axis for two dimensions.
bool HasHintOnHint(const UOp* sink) {
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kLayout && node->src[0]->op == Op::kLayout) return true;
  return false;
}

Layout RandomLayout(Random& random, const Mesh& mesh, ShapeView shape) {
  Layout layout;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    layout.cut.push_back(Layout::kWhole);
    if (shape.empty() || random.OneIn(2)) continue;
    const int64_t dim = random.Below(static_cast<int64_t>(shape.size()));
    if (shape[dim].is_const()) layout.cut.back() = dim;
  }
  return layout;
}

struct Sampled {
  Mesh mesh;
  std::vector<Layout> layouts;
  shard::ShardOptions options;
};

// The same for a seed and the shapes of a graph.
Sampled Sample(uint64_t seed, const RandomCase& c) {
  Random random(seed * 77 + 5);
  Sampled s;
  s.mesh = Meshes()[random.Below(static_cast<int64_t>(Meshes().size()))];
  for (const UOp* param : ParamsOf(c.sink))
    s.layouts.push_back(RandomLayout(random, s.mesh, param->shape));
  for (const UOp* result : c.sink->src) {
    s.options.results.emplace_back();
    if (random.OneIn(3)) s.options.results.back() = RandomLayout(random, s.mesh, result->shape);
  }
  for (size_t i = 0; i < s.layouts.size(); ++i) s.options.state.push_back(random.OneIn(2));
  s.options.spread =
      std::vector<shard::Spread>{shard::Spread::kAuto, shard::Spread::kData, shard::Spread::kFsdp,
                                 shard::Spread::kTensor}[random.Below(4)];
  s.options.speeds.collective_s = random.OneIn(2) ? 0 : 1e-4;
  s.options.speeds.operations_per_s = random.OneIn(2) ? 1 : 1e11;  // work is all, or moving is
  return s;
}

TEST(ShardRandomGraphs, AgreeWithOneDevice) {
  const uint64_t graphs = FromEnvironment("OUTBOARD_SHARD_GRAPHS", 200);
  const uint64_t seed = FromEnvironment("OUTBOARD_RANDOM_SEED", std::random_device()());
  std::printf("%llu graphs from seed %llu on\n", static_cast<unsigned long long>(graphs),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  int failures = 0, refused = 0;
  int64_t collectives = 0;
  absl::flat_hash_map<Op, int64_t> seen;
  for (uint64_t i = 0; i < graphs && failures < 3; ++i) {
    const auto check = [&](const RandomCase& c) {
      const Sampled s = Sample(seed + i, c);
      shard::ShardedGraph sharded;
      std::string problem = ShardDisagreement(*c.graph, c.sink, s.mesh, s.layouts, s.options,
                                              c.params, c.bindings, &sharded);
      for (const shard::CollectiveUse& use : sharded.report.collectives) ++seen[use.op];
      collectives += static_cast<int64_t>(sharded.report.collectives.size());
      const auto says = [&](const char* what) { return problem.find(what) != std::string::npos; };
      if ((HasSymbolicHint(c.sink) && says("UNIMPLEMENTED")) ||
          (HasHintOnHint(c.sink) && says("a mesh axis cuts one dimension of a value"))) {
        ++refused;
        problem = "";
      }
      return problem;
    };
    RandomCase c = MakeRandomCase(seed + i);
    const std::string problem = check(c);
    if (problem.empty()) continue;
    ++failures;
    std::printf("%s\n", problem.c_str());  // in case what follows crashes
    std::fflush(stdout);
    c = Shrink(std::move(c), check);
    const Sampled s = Sample(seed + i, c);
    shard::ShardedGraph sharded;
    const std::string smaller = ShardDisagreement(*c.graph, c.sink, s.mesh, s.layouts, s.options,
                                                  c.params, c.bindings, &sharded);
    std::string layouts;
    for (const Layout& layout : s.layouts) absl::StrAppend(&layouts, "; ", ToString(layout));
    ADD_FAILURE() << problem
                  << "\nrepeat: OUTBOARD_SHARD_GRAPHS=1 OUTBOARD_RANDOM_SEED=" << seed + i
                  << " build/tests/shard_random_test\nsmaller: " << smaller << "\nmesh "
                  << ToString(s.mesh) << layouts << "\n"
                  << Describe(c) << "\n"
                  << (sharded.sink == nullptr ? "" : GraphToString(sharded.sink));
  }
  std::printf("%lld collectives; %d graphs refused for a hint on a dimension with a VAR\n",
              static_cast<long long>(collectives), refused);
  if (graphs < 200 || failures > 0) return;
  for (const Op op : {Op::kUnshard, Op::kReduceScatter, Op::kAllReduce, Op::kAllToAll})
    EXPECT_GT(seen[op], 0) << std::string(Name(op));
  EXPECT_LT(refused, static_cast<int>(graphs) / 4);
}

}  // namespace
}  // namespace outboard::test
