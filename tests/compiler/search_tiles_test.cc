// The moves of the search among tiles of a GPU's matrix units (compiler/search/tiles.h): each
// number of a tile is changed by some of them, and each of them compiles.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/mma_check.h"

namespace outboard::test {
namespace {

constexpr int64_t kAxis = 2;  // of the sum
constexpr int64_t kSide = 2048;

// The amounts one move away from `opt`, each of which is compiled.
std::vector<int64_t> CompiledNeighbours(const UOp* sink, const Opt& opt, const Target& target) {
  std::vector<int64_t> amounts;
  for (const search::Neighbour& other : search::Neighbours(sink, {opt}, target)) {
    const std::string text = codegen::OptsToString(other.opts);
    EXPECT_EQ(other.opts.size(), 1u) << text;
    EXPECT_EQ(other.opts[0].kind, opt.kind) << text;
    const auto compiled = CompileKernel(sink, {.target = target, .opts = other.opts});
    EXPECT_TRUE(compiled.ok()) << text << ": " << compiled.status();
    amounts.push_back(other.opts[0].amount);
  }
  return amounts;
}

template <class Tile>
struct NamedNumber {
  const char* name;
  int64_t Tile::*number;
};

// Whether some of the tiles differ from `tile` in each of these numbers.
template <class Tile, size_t kCount>
void ExpectEachMoves(const Tile& tile, const std::vector<Tile>& others,
                     const NamedNumber<Tile> (&numbers)[kCount]) {
  for (const auto& [name, number] : numbers) {
    int moved = 0;
    for (const Tile& other : others) moved += other.*number != tile.*number;
    EXPECT_GT(moved, 0) << "no move changes " << name;
  }
}

TEST(SearchTiles, EveryNumberOfMma_IsChangedByALegalMove) {
  Graph g;
  const UOp* const sink = KernelOf(g, {.m = kSide, .n = kSide, .k = kSide});
  for (const char* arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    const Target target = CudaTarget(arch, kMultiprocessors);
    const MmaTile tile{64, 64, 32, 2, 2, 3};
    std::vector<MmaTile> others;
    for (const int64_t amount :
         CompiledNeighbours(sink, {OptKind::kMma, kAxis, codegen::MmaAmount(tile)}, target))
      others.push_back(codegen::MmaTileOf(amount));
    ExpectEachMoves<MmaTile>(tile, others,
                             {{"rows", &MmaTile::rows},
                              {"columns", &MmaTile::columns},
                              {"steps", &MmaTile::steps},
                              {"warps down", &MmaTile::warps_down},
                              {"warps across", &MmaTile::warps_across},
                              {"stages", &MmaTile::stages},
                              {"order", &MmaTile::order}});
  }
}

TEST(SearchTiles, EveryNumberOfWgmma_IsChangedByALegalMove) {
  using program::HopperTile;
  Graph g;
  const UOp* const sink = KernelOf(g, {.m = kSide, .n = kSide, .k = kSide, .b_turned = true});
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  std::set<int64_t> stages, columns;
  for (const int64_t from : {2, 4, 8}) {
    SCOPED_TRACE(testing::Message() << from << " stages");
    const HopperTile tile{.columns = 64, .stages = from};
    std::vector<HopperTile> others;
    for (const int64_t amount : CompiledNeighbours(
             sink, {OptKind::kWgmma, kAxis, program::WgmmaAmount(tile)}, target)) {
      others.push_back(program::WgmmaTileOf(amount, target));
      stages.insert(others.back().stages);
      columns.insert(others.back().columns);
    }
    ExpectEachMoves<HopperTile>(tile, others,
                                {{"columns", &HopperTile::columns},
                                 {"stages", &HopperTile::stages},
                                 {"persistent blocks", &HopperTile::persistent_blocks},
                                 {"cluster", &HopperTile::cluster},
                                 {"split", &HopperTile::split},
                                 {"order", &HopperTile::order}});
  }
  EXPECT_EQ(stages, (std::set<int64_t>{2, 4, 8}));
  EXPECT_EQ(columns, (std::set<int64_t>{64, 128, 192, 256}));
}

}  // namespace
}  // namespace outboard::test
