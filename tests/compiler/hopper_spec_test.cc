// Instructions for sm_90a: what the spec refuses, and what the proof of ranges does.
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/match.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"
#include "tests/compiler/hopper_run.h"

namespace outboard::program {
namespace {

struct HopperRefusal {
  const char* rule;  // in the message
  std::function<void(ProgramBuilder&)> make;
};

TEST(HopperSpec, SpecRefusesWhatIsNoProgram) {
  const auto barriers = [](ProgramBuilder& b) { return b.Alloc(Space::kBarriers, DType::kU64, 2); };
  const auto view = [](ProgramBuilder& b, MappedTensor map) {
    return b.Map(b.Buffer(DType::kBF16, 0, 64 * 64), std::move(map));
  };
  const MappedTensor square{.slot = 0,
                            .element = MappedTensor::Element::kBF16,
                            .swizzled = true,
                            .dims = {64, 64},
                            .strides = {128},
                            .box = {64, 64}};
  const auto with = [square](auto change) {
    MappedTensor map = square;
    change(map);
    return map;
  };
  const auto product = [](ProgramBuilder& b, int64_t columns, int64_t sums, DType type,
                          int64_t leading = 0, int64_t alone = 0) {
    b.Special(Grid::kThread, 128);
    const ValueId c = b.Alloc(Space::kPrivate, DType::kF32, sums);
    const ValueId tile = b.Alloc(Space::kShared, type, 64 * 64);
    b.Do(Code::kWgmma, {c, tile, b.Int(0), tile, b.Int(0)}, {columns, 0, leading, alone});
  };
  struct Registers {
    DType type = DType::kU32;
    int64_t at = 0, leading = 0;
    bool constant = true;
    DType other = DType::kF32;  // of b
  };
  // 8 registers.
  const auto of_registers = [](ProgramBuilder& b, const Registers& a) {
    const ValueId thread = b.Special(Grid::kThread, 128);
    const ValueId c = b.Alloc(Space::kPrivate, DType::kF32, 32);
    const ValueId registers = b.Alloc(Space::kPrivate, a.type, 8);
    const ValueId tile = b.Alloc(Space::kShared, a.other, 64 * 128 / ByteWidth(a.other));
    b.Do(Code::kWgmma, {c, registers, a.constant ? b.Int(a.at) : thread, tile, b.Int(0)},
         {64, a.leading, 0, 0});
  };
  const auto matrix = [](ProgramBuilder& b, DType type, int64_t how, int64_t elements = 1024) {
    b.Special(Grid::kThread, 128);
    b.Add({.code = Code::kLdmatrix,
           .dtype = type,
           .lanes = 16 / ByteWidth(type),
           .src = {b.Alloc(Space::kShared, type, elements), b.Int(0)},
           .imm = {how, 0, 0}});
  };
  const HopperRefusal cases[] = {
      {"barriers are u64", [](ProgramBuilder& b) { b.Alloc(Space::kBarriers, DType::kU32, 2); }},
      {"of no barriers",
       [](ProgramBuilder& b) {
         b.Do(Code::kMbArrive, {b.Alloc(Space::kShared, DType::kU64, 2), b.Int(0)});
       }},
      {"of 0 arrivals",
       [&](ProgramBuilder& b) {
         b.Do(Code::kMbInit, {barriers(b), b.Int(0)});
       }},
      {"the first source is no memory", [&](ProgramBuilder& b) { b.Load(barriers(b), b.Int(0)); }},
      {"memory of a block in a scope",
       [&](ProgramBuilder& b) {
         const ValueId loop = b.Loop(2);
         barriers(b);
         b.End(loop);
       }},
      {"is of another buffer",
       [&](ProgramBuilder& b) { view(b, with([](auto& m) { m.slot = 1; })); }},
      {"is of another type",
       [&](ProgramBuilder& b) {
         view(b, with([](auto& m) { m.element = MappedTensor::Element::kF16; }));
       }},
      {"is of another type",
       [&](ProgramBuilder& b) {
         view(b, with([](auto& m) { m.element = MappedTensor::Element::kByte; }));
       }},
      {"has a stride of 130 bytes",
       [&](ProgramBuilder& b) { view(b, with([](auto& m) { m.strides = {130}; })); }},
      {"has rows of 64 bytes",
       [&](ProgramBuilder& b) { view(b, with([](auto& m) { m.box[0] = 32; })); }},
      {"has 1 dimensions",
       [&](ProgramBuilder& b) {
         view(b, with([](auto& m) {
                m.dims = m.box = {64};
                m.strides = {};
              }));
       }},
      {"of a smaller buffer",
       [&](ProgramBuilder& b) { view(b, with([](auto& m) { m.dims[1] = 65; })); }},
      {"1 coordinates of 2",
       [&](ProgramBuilder& b) {
         b.Do(Code::kBoxStore, {b.Alloc(Space::kShared, DType::kBF16, 64 * 64), b.Int(0),
                                view(b, square), b.Int(0)});
       }},
      {"no multiple of 1024 bytes",
       [&](ProgramBuilder& b) {
         b.Do(Code::kBoxStore, {b.Alloc(Space::kShared, DType::kBF16, 64 * 64 + 8), b.Int(0),
                                view(b, square), b.Int(0), b.Int(0)});
       }},
      {"in a block of no whole warpgroups", [](ProgramBuilder& b) { b.Do(Code::kWgCommit); }},
      {"60 columns", [&](ProgramBuilder& b) { product(b, 60, 30, DType::kBF16); }},
      {"private memory of 32 f32", [&](ProgramBuilder& b) { product(b, 64, 31, DType::kBF16); }},
      {"of a type that it has no form for",
       [&](ProgramBuilder& b) { product(b, 64, 32, DType::kF64); }},
      {"rows side by side, of 1 bytes",
       [&](ProgramBuilder& b) { product(b, 64, 32, DType::kF8E4M3, 1024); }},
      {"rows side by side, of 4 bytes",
       [&](ProgramBuilder& b) { product(b, 64, 32, DType::kF32, 1024); }},
      {"neither adds nor is alone",
       [&](ProgramBuilder& b) { product(b, 64, 32, DType::kBF16, 0, 2); }},
      {"registers that are no u32",
       [&](ProgramBuilder& b) { of_registers(b, {.type = DType::kF32}); }},
      {"not four at a constant place",
       [&](ProgramBuilder& b) { of_registers(b, {.constant = false}); }},
      {"not four at a constant place", [&](ProgramBuilder& b) { of_registers(b, {.at = 2}); }},
      {"not four at a constant place", [&](ProgramBuilder& b) { of_registers(b, {.at = 8}); }},
      {"not four at a constant place", [&](ProgramBuilder& b) { of_registers(b, {.at = -4}); }},
      {"a leading distance of registers",
       [&](ProgramBuilder& b) { of_registers(b, {.leading = 1024}); }},
      {"of registers, and of a type that it has no form for",
       [&](ProgramBuilder& b) { of_registers(b, {.other = DType::kF8E4M3}); }},
      {"neither transposed, swizzled, nor plain",
       [&](ProgramBuilder& b) { matrix(b, DType::kBF16, 3); }},
      {"neither transposed, swizzled, nor plain",
       [&](ProgramBuilder& b) { matrix(b, DType::kBF16, -1); }},
      {"is transposed, but not of 16 bits",
       [&](ProgramBuilder& b) { matrix(b, DType::kF32, 1); }},
      {"in memory of no whole patterns",
       [&](ProgramBuilder& b) { matrix(b, DType::kF32, 2, 264); }},
      {"in a scope that threads may enter apart",
       [&](ProgramBuilder& b) {
         const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 1024);
         const ValueId branch = b.If(b.Less(b.Special(Grid::kThread, 128), b.Int(64)));
         b.Add(
             {.code = Code::kLdmatrix, .dtype = DType::kF32, .lanes = 4, .src = {tile, b.Int(0)}});
         b.EndIf(branch);
       }},
      {"a warpgroup may enter apart",
       [](ProgramBuilder& b) {
         const ValueId branch = b.If(b.Less(b.Special(Grid::kThread, 256), b.Int(64)));
         b.Do(Code::kWgCommit);
         b.EndIf(branch);
       }},
      {"a warp may enter apart",
       [](ProgramBuilder& b) {
         const ValueId branch = b.If(b.Less(b.Int(62), b.Special(Grid::kThread, 128)));
         b.Do(Code::kWarpSync);
         b.EndIf(branch);
       }},
      {"no whole warps",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 48);
         b.Do(Code::kWarpSync);
       }},
      {"100 registers",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 128);
         b.Do(Code::kMaxRegisters, {}, {100, 0, 0});
       }},
      {"swizzled in memory of no whole patterns",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kCopy,
                .src = {b.Alloc(Space::kShared, DType::kF32, 4), b.Int(0),
                        b.Buffer(DType::kF32, 0, 4), b.Int(0)},
                .imm = {4, 1, 1}});
       }},
      {"swizzled, but no aligned part of 16 bytes",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kCopy,
                .src = {b.Alloc(Space::kShared, DType::kF32, 256), b.Int(0),
                        b.Buffer(DType::kF32, 0, 8), b.Int(0)},
                .imm = {8, 1, 1}});
       }},
  };
  for (const HopperRefusal& refusal : cases) {
    ProgramBuilder b;
    refusal.make(b);
    const absl::Status status = CheckProgram(b.Take(2), "test");
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << refusal.rule;
    EXPECT_TRUE(absl::StrContains(status.message(), refusal.rule))
        << refusal.rule << ": " << status;
  }
}

TEST(HopperSpec, AWarpgroupsBranch_IsNoneThatItMayEnterApart) {
  ProgramBuilder b;
  const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 1024);
  const ValueId thread = b.Special(Grid::kThread, 256);
  const ValueId first = b.If(b.Less(thread, b.Int(128)));
  b.Do(Code::kWgSync);
  b.EndIf(first);
  const ValueId second = b.If(b.Less(b.Int(0), b.Divide(thread, 128)));
  b.Do(Code::kWgSync);
  b.EndIf(second);
  const ValueId third = b.If(b.Less(thread, b.Int(128)));
  b.Add({.code = Code::kLdmatrix, .dtype = DType::kF32, .lanes = 4, .src = {tile, b.Int(0)}});
  b.EndIf(third);
  const ValueId warps = b.If(b.Less(b.Int(95), thread));
  b.Do(Code::kWarpSync);
  b.EndIf(warps);
  EXPECT_EQ(CheckProgram(b.Take(0), "test"), absl::OkStatus());
}

// Whatever is in registers, B is in the memory of the block.
TEST(HopperSpec, ProofOfRanges_SeesTheOtherOperandOfRegisters) {
  const auto unproved = [](int64_t at) {
    ProgramBuilder b;
    b.Special(Grid::kThread, 128);
    const ValueId c = b.Alloc(Space::kPrivate, DType::kF32, 32);
    const ValueId registers = b.Alloc(Space::kPrivate, DType::kU32, 8);
    const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 64 * 32);
    b.Do(Code::kWgmma, {c, registers, b.Int(4), tile, b.Int(at)}, {64, 0, 0});
    return proof::UnprovedAccesses(b.Take(0)).size();
  };
  EXPECT_EQ(unproved(24), 0u);
  EXPECT_EQ(unproved(32), 1u);
}

TEST(HopperSpec, ProofOfRanges_RefusesWhatIsOutsideOfBlockMemory) {
  const auto unproved = [](int64_t at) {
    ProgramBuilder b;
    b.Special(Grid::kThread, 128);
    const ValueId c = b.Alloc(Space::kPrivate, DType::kF32, 32);
    const ValueId tile = b.Alloc(Space::kShared, DType::kBF16, 64 * 64);
    b.Do(Code::kWgmma, {c, tile, b.Int(at), tile, b.Int(0)}, {64, 0, 0});
    return proof::UnprovedAccesses(b.Take(0)).size();
  };
  EXPECT_EQ(unproved(48), 0u);
  EXPECT_EQ(unproved(64), 1u);
  EXPECT_EQ(unproved(-16), 1u);
}

}  // namespace
}  // namespace outboard::program
