// Instructions for sm_90a: what they do in the interpreter of programs and on the PTX machine, and
// the mistakes that the interpreter finds in whatever order threads run.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "compiler/program/hopper/results.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::program {
namespace {

using Buffers = std::vector<std::string>;
using test::Changing;
using test::Drop;
using test::Edited;
using test::Without;
constexpr MappedTensor::Element kF32 = MappedTensor::Element::kF32;

struct PlantedMistake {
  const char* name;
  std::function<bool(ProgramBuilder&, Instruction&)> edit;
  std::vector<Fault> faults;  // one of these, in every order
};

std::vector<PlantedMistake> Mistakes() {
  const auto other_parity = [](ProgramBuilder& b, Instruction& i) {
    i.src[2] = b.Plus(b.Int(1), b.Times(i.src[2], -1));
    return true;
  };
  const auto imm = [](int64_t value) {
    return [value](ProgramBuilder&, Instruction& i) {
      i.imm[0] = value;
      return true;
    };
  };
  // The waits of the program, in its order: the producer's for an empty stage; the consumers' for
  // the first full one, and for those in the loop. WGWAIT: 1 in the loop, then 0.
  return {
      {"no WGFENCE", Changing(Code::kWgFence, 0, Drop), {Fault::kAccumulator}},
      {"no last WGWAIT", Changing(Code::kWgWait, 1, Drop), {Fault::kAccumulator, Fault::kRace}},
      {"a stage is released before its products are done",
       Changing(Code::kWgWait, 0, imm(2)),
       {Fault::kRace}},
      {"no wait for an empty stage",
       Changing(Code::kMbWait, 0, Drop),
       {Fault::kRace, Fault::kMisuse}},
      {"no wait for the first full stage",
       Changing(Code::kMbWait, 1, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"no wait for the next full stages",
       Changing(Code::kMbWait, 2, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"the producer waits for the other parity",
       Changing(Code::kMbWait, 0, other_parity),
       {Fault::kEndlessWait}},
      {"consumers wait for the other parity first",
       Changing(Code::kMbWait, 1, other_parity),
       {Fault::kRace, Fault::kUninitialised, Fault::kEndlessWait}},
      {"consumers wait for the other parity",
       Changing(Code::kMbWait, 2, other_parity),
       {Fault::kRace, Fault::kUninitialised, Fault::kEndlessWait}},
      {"half of the bytes are expected",
       Changing(Code::kMbExpect, 0,
                [](ProgramBuilder&, Instruction& i) {
                  i.imm[0] /= 2;
                  return true;
                }),
       {Fault::kEndlessWait, Fault::kRace}},
      {"one arrival empties a stage",
       Changing(Code::kMbInit, 1, imm(1)),
       {Fault::kRace, Fault::kMisuse, Fault::kEndlessWait}},
      {"barriers are used before all know of them",
       Without(Code::kBarrier),
       {Fault::kRace, Fault::kUninitialised}},
      {"no stage is released", Without(Code::kMbArrive), {Fault::kEndlessWait}},
      {"an operand begins in the middle of a pattern",
       Changing(Code::kWgmma, 2,
                [](ProgramBuilder& b, Instruction& i) {
                  i.src[2] = b.Plus(i.src[2], b.Int(64));
                  return true;
                }),
       {Fault::kMisuse, Fault::kOutOfRange}},
      {"more registers than others gave up",
       Changing(Code::kMaxRegisters, 1, imm(240)),
       {Fault::kDivergence, Fault::kEndlessWait}},
      {"a raise that lowers", Changing(Code::kMaxRegisters, 1, imm(160)), {Fault::kMisuse}},
      {"a lowering that raises", Changing(Code::kMaxRegisters, 0, imm(176)), {Fault::kMisuse}},
      {"products are in no group",
       Changing(Code::kWgCommit, 1, Drop),
       {Fault::kAccumulator, Fault::kRace}},
  };
}

TEST(HopperProgram, EveryPlantedMistake_IsFoundInEveryOrder) {
  const test::HopperCase product{.product = {.m = 128, .n = 64, .k = 448, .c_dtype = DType::kF32},
                                 .tile = {.columns = 64, .stages = 2}};
  const auto program = MakeHopperProduct(product.product, product.tile);
  ASSERT_TRUE(program.ok()) << program.status();
  int found = 0;
  for (const PlantedMistake& planted : Mistakes()) {
    SCOPED_TRACE(planted.name);
    const Program wrong = Edited(*program, planted.edit);
    ASSERT_NE(wrong, *program);
    bool every = true;
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      Buffers buffers = test::InputsOf(product);
      const RunReport report = Interpret(wrong, buffers, {}, {.seed = seed});
      const bool expected = std::find(planted.faults.begin(), planted.faults.end(), report.fault) !=
                            planted.faults.end();
      EXPECT_TRUE(expected) << "seed " << seed << ": " << Name(report.fault) << ": "
                            << report.message;
      every = every && expected;
    }
    found += every;
  }
  std::printf("%d of %zu planted mistakes found\n", found, Mistakes().size());
}

// ---- clusters

// Two blocks, one below the other, that copy half of B each for both.
const test::HopperCase& Cluster() {
  static const test::HopperCase* const kCase =
      new test::HopperCase{.product = {.m = 256, .n = 128, .k = 448, .c_dtype = DType::kF32},
                           .tile = {.stages = 2, .cluster = 2}};
  return *kCase;
}

std::vector<PlantedMistake> ClusterMistakes() {
  const auto imm = [](int64_t value) {
    return [value](ProgramBuilder&, Instruction& i) {
      i.imm[0] = value;
      return true;
    };
  };
  // BOXLOADs: of A, then of B. MBARRIVEs: of the loop, of the last stage.
  return {
      {"blocks use barriers that others have not made",
       Changing(Code::kClusterSync, 0, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"a copy for a block beyond the cluster",
       Changing(Code::kBoxLoad, 1, imm(4)),
       {Fault::kOutOfRange}},
      {"one warpgroup does not meet the others",
       Changing(Code::kClusterSync, 1, Drop),
       {Fault::kDivergence, Fault::kMisuse}},
      {"a copy for one block alone", Changing(Code::kBoxLoad, 1, imm(1)), {Fault::kEndlessWait}},
      {"a stage is released in one block alone",
       Changing(Code::kMbArrive, 0,
                [](ProgramBuilder& b, Instruction& i) {
                  i.src[2] = b.Int(0);
                  return true;
                }),
       {Fault::kEndlessWait, Fault::kMisuse, Fault::kRace}},
      {"arrivals of one block empty a stage",
       Changing(Code::kMbInit, 1, imm(2)),
       {Fault::kRace, Fault::kMisuse}},
      {"a stage is released at a block beyond the cluster",
       Changing(Code::kMbArrive, 0,
                [](ProgramBuilder& b, Instruction& i) {
                  i.src[2] = b.Int(2);
                  return true;
                }),
       {Fault::kOutOfRange}},
      {"bytes of the own half of B are expected",
       Changing(Code::kMbExpect, 0,
                [](ProgramBuilder&, Instruction& i) {
                  i.imm[0] -= 64 * 64 * 2;
                  return true;
                }),
       {Fault::kRace, Fault::kEndlessWait, Fault::kUninitialised}},
  };
}

TEST(HopperProgram, EveryMistakeOfAClusterIsFoundInEveryOrder) {
  const auto program = MakeHopperProduct(Cluster().product, Cluster().tile);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->cluster, 2);
  for (const PlantedMistake& planted : ClusterMistakes()) {
    SCOPED_TRACE(planted.name);
    const Program wrong = Edited(*program, planted.edit);
    ASSERT_NE(wrong, *program);
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Buffers buffers = test::InputsOf(Cluster());
      const RunReport report = Interpret(wrong, buffers, {}, {.seed = seed});
      EXPECT_NE(std::find(planted.faults.begin(), planted.faults.end(), report.fault),
                planted.faults.end())
          << "seed " << seed << ": " << Name(report.fault) << ": " << report.message;
    }
  }
}

// A block that leaves while others still copy to it: no order of threads has to show that.
TEST(HopperProgram, AClusterThatDoesNotMeet_IsNoProgram) {
  const auto program = MakeHopperProduct(Cluster().product, Cluster().tile);
  ASSERT_TRUE(program.ok()) << program.status();
  const std::pair<std::function<bool(ProgramBuilder&, Instruction&)>, const char*> cases[] = {
      {Changing(Code::kClusterSync, 0, Drop), "before a CLUSTERSYNC"},
      {Changing(Code::kClusterSync, 2, Drop), "no CLUSTERSYNC comes after"},
      {Changing(Code::kBoxLoad, 1,
                [](ProgramBuilder&, Instruction& i) {
                  i.imm[0] = 7;
                  return true;
                }),
       "ranks 7 of 2 blocks"},
  };
  for (const auto& [edit, rule] : cases) {
    const absl::Status status = CheckProgram(Edited(*program, edit), "test");
    EXPECT_TRUE(absl::StrContains(status.message(), rule)) << rule << ": " << status;
  }
  Program torn = *program;
  torn.cluster = 4;  // of two blocks
  EXPECT_FALSE(CheckProgram(torn, "test").ok());
  const auto at_rank = [&](int64_t rank) {
    const Program changed = Edited(
        *program, Changing(Code::kMbArrive, 0, [rank](ProgramBuilder& b, Instruction& i) {
          i.src[2] = b.Int(rank);
          return true;
        }));
    return proof::UnprovedAccesses(changed).size();
  };
  EXPECT_EQ(at_rank(1), 0u);
  EXPECT_EQ(at_rank(2), 1u);
}

// ---- copies of boxes

// 128 threads write a swizzled tile of 32 x 32 f32, which is stored to rows 32 on and columns 16 on
// of a matrix of 40 rows of 36: a part of the tile is outside.
constexpr int64_t kMatrixRows = 40, kMatrixColumns = 36, kTileRows = 32, kTileColumns = 32;
Program StoredTile() {
  ProgramBuilder b;
  const ValueId thread = b.Special(Grid::kThread, kWarpgroupThreads);
  const ValueId out = b.Buffer(DType::kF32, 0, kMatrixRows * kMatrixColumns);
  const ValueId map = b.Map(out, {.slot = 0,
                                  .element = kF32,
                                  .swizzled = true,
                                  .dims = {kMatrixColumns, kMatrixRows},
                                  .strides = {kMatrixColumns * 4},
                                  .box = {kTileColumns, kTileRows}});
  const ValueId tile = b.Alloc(Space::kShared, DType::kF32, kTileRows * kTileColumns);
  const ValueId column = b.Modulo(thread, kTileColumns);
  for (int64_t row = 0; row < kTileRows; row += 4) {
    const ValueId i = b.Plus(b.Divide(thread, kTileColumns), b.Int(row));
    // Pieces of four f32 of a row are exchanged by the row's last three bits.
    const ValueId piece = b.Alu(Op::kXor, DType::kI64, {b.Divide(column, 4), b.Modulo(i, 8)});
    const ValueId place =
        b.Plus(b.Plus(b.Times(i, kTileColumns), b.Times(piece, 4)), b.Modulo(column, 4));
    b.Store(tile, place, b.Cast(b.Plus(b.Times(i, 100), column), DType::kF32));
  }
  b.Do(Code::kProxyFence);
  b.Do(Code::kWgSync);
  const ValueId one = b.If(b.Less(thread, b.Int(1)));
  b.Do(Code::kBoxStore, {tile, b.Int(0), map, b.Int(16), b.Int(32)});
  b.Do(Code::kBoxCommit);
  b.Do(Code::kBoxWait, {}, {0, 0, 0});
  b.EndIf(one);
  return b.Take(1);
}

Buffers FloatsOf(int64_t count, float value) {
  const std::vector<float> numbers(static_cast<size_t>(count), value);
  return {std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4)};
}
float At(const std::string& bytes, int64_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + index * 4, 4);
  return value;
}

// Runs the program by the interpreter, then as PTX, and calls `check` on the buffers of each.
void RunBoth(const Program& program, const Buffers& start,
             const std::function<void(const Buffers&)>& check) {
  ASSERT_EQ(CheckProgram(program, "test"), absl::OkStatus());
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    Buffers buffers = start;
    const RunReport report = Interpret(program, buffers, {}, {.seed = seed});
    ASSERT_TRUE(report.ok()) << report.message;
    check(buffers);
  }
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  const auto kernel = (*renderer)->Render(program, "k");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  Buffers buffers = start;
  const absl::Status ran = test::RunOnPtxMachine(*kernel, buffers);
  ASSERT_TRUE(ran.ok()) << ran << kernel->object;
  check(buffers);
}

TEST(HopperProgram, AStoredBox_IsSwizzledAndWritesNothingOutside) {
  RunBoth(StoredTile(), FloatsOf(kMatrixRows * kMatrixColumns, -1), [](const Buffers& buffers) {
    for (int64_t i = 0; i < kMatrixRows; ++i)
      for (int64_t j = 0; j < kMatrixColumns; ++j)
        ASSERT_EQ(At(buffers[0], i * kMatrixColumns + j),
                  i >= 32 && j >= 16 ? static_cast<float>((i - 32) * 100 + j - 16) : -1)
            << i << " " << j;
  });
}

TEST(HopperProgram, MistakesAroundAStoredBox_AreFound) {
  const PlantedMistake cases[] = {
      {"no fence", Without(Code::kProxyFence), {Fault::kMissingFence}},
      {"no barrier of the warpgroup", Without(Code::kWgSync), {Fault::kRace}},
      {"nobody waits", Without(Code::kBoxWait), {Fault::kRace}},
  };
  for (const PlantedMistake& planted : cases) {
    SCOPED_TRACE(planted.name);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      Buffers buffers = FloatsOf(kMatrixRows * kMatrixColumns, -1);
      const RunReport report =
          Interpret(Edited(StoredTile(), planted.edit), buffers, {}, {.seed = seed});
      EXPECT_EQ(report.fault, planted.faults[0]) << report.message;
    }
  }
}

// A box of four dimensions, from outside of the view's beginning on, to another view.
TEST(HopperProgram, ABoxOfFourDimensions_HasZerosOutside) {
  const std::vector<int64_t> dims = {8, 3, 4, 2};
  const MappedTensor view{
      .slot = 1, .element = kF32, .dims = dims, .strides = {32, 96, 384}, .box = {8, 2, 3, 2}};
  ProgramBuilder b;
  const ValueId thread = b.Special(Grid::kThread, 32);
  const ValueId out = b.Buffer(DType::kF32, 0, 96), in = b.Buffer(DType::kF32, 1, 192);
  const ValueId from = b.Map(in, view);
  const ValueId to = b.Map(out, {.slot = 0,
                                 .element = kF32,
                                 .dims = {8, 2, 3, 2},
                                 .strides = {32, 64, 192},
                                 .box = {8, 2, 3, 2}});
  const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 256);
  const ValueId barriers = b.Alloc(Space::kBarriers, DType::kU64, 1);
  const ValueId zero = b.Int(0);
  const ValueId one = b.If(b.Less(thread, b.Int(1)));
  b.Do(Code::kMbInit, {barriers, zero}, {1, 0, 0});
  b.Do(Code::kMbExpect, {barriers, zero}, {96 * 4, 0, 0});
  b.Do(Code::kBoxLoad, {tile, zero, barriers, zero, from, zero, b.Int(2), b.Int(-1), zero});
  b.Do(Code::kMbWait, {barriers, zero, zero});
  b.Do(Code::kBoxStore, {tile, zero, to, zero, zero, zero, zero});
  b.Do(Code::kBoxCommit);
  b.Do(Code::kBoxWait, {}, {0, 0, 0});
  b.EndIf(one);
  Buffers start = FloatsOf(96, -1);
  std::vector<float> numbers(192);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i + 1);
  start.emplace_back(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
  RunBoth(b.Take(2), start, [](const Buffers& buffers) {
    for (int64_t place = 0; place < 96; ++place) {
      const int64_t x = place % 8, y = place / 8 % 2 + 2, z = place / 16 % 3 - 1, w = place / 48;
      const bool inside = y < 3 && z >= 0;
      ASSERT_EQ(At(buffers[0], place),
                inside ? static_cast<float>(w * 96 + z * 24 + y * 8 + x + 1) : 0)
          << place;
    }
  });
}

// c[i][j] = sum over k < 16 of a[i][k] * b[j][k], of 16 bits: a thread loads its numbers of a from
// the buffer, two for each register. b is the beginning of 64 rows (`turned`: columns) of 64.
Program ProductOfHalves(DType dtype, bool turned) {
  constexpr int kDepth = WgmmaDepth(2), kSide = 64;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kSide * kSide);
  const ValueId left = b.Buffer(dtype, 1, kSide * kDepth);
  const ValueId map = b.Map(b.Buffer(dtype, 2, kSide * kSide),
                            {.slot = 2,
                             .element = ElementOf(dtype),
                             .swizzled = true,
                             .dims = {kSide, kSide},
                             .strides = {kSide * 2},
                             .box = {kSide, kSide}});
  const ValueId tile = b.Alloc(Space::kShared, dtype, kSide * kSide);
  const ValueId full = b.Alloc(Space::kBarriers, DType::kU64, 1);
  const ValueId thread = b.Special(Grid::kThread, kWarpgroupThreads);
  const ValueId one = b.If(b.Less(thread, b.Int(1)));
  b.Do(Code::kMbInit, {full, b.Int(0)}, {1, 0, 0});
  b.Do(Code::kMbExpect, {full, b.Int(0)}, {kSide * kSide * 2, 0, 0});
  b.Do(Code::kBoxLoad, {tile, b.Int(0), full, b.Int(0), map, b.Int(0), b.Int(0)});
  b.EndIf(one);
  b.Barrier();
  b.Do(Code::kMbWait, {full, b.Int(0), b.Int(0)});
  const ValueId sums = b.Alloc(Space::kPrivate, DType::kF32, kSide / 2);
  const ValueId registers = b.Alloc(Space::kPrivate, DType::kU32, kWgmmaRegistersOfA);
  const ValueId in_warp = b.Modulo(thread, 32);
  for (int r = 0; r < kWgmmaRegistersOfA; ++r) {
    Instruction two{.code = Code::kLanes, .dtype = dtype, .lanes = 2};
    for (int half = 0; half < 2; ++half) {
      const MatrixPlace of_first = WgmmaOfA(0, 2 * r + half, 2);
      const ValueId row = b.Plus(b.Plus(b.Times(b.Divide(thread, 32), 16), b.Divide(in_warp, 4)),
                                 b.Int(of_first.row));
      const ValueId k = b.Plus(b.Times(b.Modulo(in_warp, 4), 2), b.Int(of_first.column));
      two.src.push_back(b.Load(left, b.Plus(b.Times(row, kDepth), k)));
    }
    const ValueId pair = b.Add(std::move(two));
    b.Store(registers, b.Int(r),
            b.Add({.code = Code::kBitcast, .dtype = DType::kU32, .src = {pair}}));
  }
  b.Do(Code::kWgFence, {sums, registers});
  b.Do(Code::kWgmma, {sums, registers, b.Int(0), tile, b.Int(0)},
       {kSide, 0, turned ? kSide * kSide : 0, 1});
  b.Do(Code::kWgCommit);
  b.Do(Code::kWgWait, {sums, registers}, {0, 0, 0});
  for (int s = 0; s < kSide / 2; ++s) {
    const MatrixPlace of_first = WgmmaElement(0, s);
    const ValueId row = b.Plus(b.Plus(b.Times(b.Divide(thread, 32), 16), b.Divide(in_warp, 4)),
                               b.Int(of_first.row));
    const ValueId column = b.Plus(b.Times(b.Modulo(in_warp, 4), 2), b.Int(of_first.column));
    b.Store(out, b.Plus(b.Times(row, kSide), column), b.Load(sums, b.Int(s)));
  }
  return b.Take(3);
}

TEST(HopperProgram, AProductOfHalvesInRegisters_IsThatOfTheirNumbers) {
  constexpr int kDepth = WgmmaDepth(2), kSide = 64;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(testing::Message() << Name(dtype) << (turned ? ", b by columns" : ""));
      // Small whole numbers: sums are exact. No two rows of a are equal, nor two columns of b.
      const auto number = [](int i, int k) { return double{(i * 7 + k * 13 + i * k) % 17 - 8.0}; };
      Buffers start(3);
      start[0].assign(kSide * kSide * 4, '\xa5');
      start[1].resize(kSide * kDepth * 2);
      start[2].resize(kSide * kSide * 2);
      for (int i = 0; i < kSide; ++i)
        for (int k = 0; k < kSide; ++k) {
          if (k < kDepth) StoreFloat(dtype, number(i, k), &start[1][(i * kDepth + k) * 2]);
          const int at = turned ? k * kSide + i : i * kSide + k;
          StoreFloat(dtype, number(i + 1, 2 * k), &start[2][at * 2]);
        }
      const Program program = ProductOfHalves(dtype, turned);
      ASSERT_EQ(CheckProgram(program, "test"), absl::OkStatus());
      const auto expect = [&](const Buffers& got) {
        for (int i = 0; i < kSide; ++i)
          for (int j = 0; j < kSide; ++j) {
            double sum = 0;
            for (int k = 0; k < kDepth; ++k) sum += number(i, k) * number(j + 1, 2 * k);
            ASSERT_EQ(LoadFloat(DType::kF32, &got[0][(i * kSide + j) * 4]), sum) << i << " " << j;
          }
      };
      for (const uint32_t seed : {1u, 2u, 3u}) {
        Buffers got = start;
        const RunReport report = Interpret(program, got, {}, {.seed = seed});
        ASSERT_TRUE(report.ok()) << report.message;
        expect(got);
      }
      const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
      ASSERT_TRUE(renderer.ok());
      const auto kernel = (*renderer)->Render(program, "k");
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      Buffers got = start;
      const absl::Status ran = test::RunOnPtxMachine(*kernel, got);
      ASSERT_TRUE(ran.ok()) << ran;
      expect(got);
    }
}

TEST(HopperProgram, OtherTargets_RefuseItByName) {
  const auto sm90 = render::MakePtxRenderer(CudaTarget("sm_90", 132));
  const absl::Status status =
      (*sm90)->Render(StoredTile(), "k").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(status.message(), "sm_90 has no form for")) << status;
}

}  // namespace
}  // namespace outboard::program
