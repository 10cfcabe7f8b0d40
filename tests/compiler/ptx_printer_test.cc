// What the printer of PTX decides by itself: quotients by constants, accesses that become one,
// registers of private memory, where values are computed, widths of counters. Programs by hand, on
// the PTX machine, against the interpreter of programs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "compiler/program/program.h"
#include "tests/compiler/ptx_check.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::Program;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

TEST(PtxPrinter, QuotientsByConstants) {
  constexpr int64_t kThreads = 64;
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32,
                            DType::kU32, DType::kI64, DType::kU64}) {
    const int width = ByteWidth(dtype);
    const int64_t most = IntMax(dtype), least = IntMin(dtype);
    std::vector<int64_t> divisors = {1, 2, 3, 5, 6, 7, 10, 12, 64, 100, 127, most - 1, most};
    if (width > 1) divisors.insert(divisors.end(), {641, 1 << 14, 32767});
    if (width > 2) divisors.insert(divisors.end(), {1 << 30, 715827883, most / 3});
    std::string numbers(static_cast<size_t>(kThreads * width), '\0');
    for (int64_t i = 0; i < kThreads; ++i) {
      const int64_t divisor = divisors[static_cast<size_t>(i) % divisors.size()];
      const int64_t number = i < 8    ? least + i
                             : i < 16 ? most - (i - 8)
                             : i < 24 ? i - 20
                                      : divisor * (i - 40) + i % 3 - 1;
      StoreInt(dtype, WrapTo(dtype, number), numbers.data() + i * width);
    }
    ProgramBuilder b;
    const auto count = static_cast<int64_t>(2 * divisors.size());
    const ValueId out = b.Buffer(dtype, 0, count * kThreads), in = b.Buffer(dtype, 1, kThreads);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId x = b.Load(in, thread);
    int64_t row = 0;
    for (const int64_t divisor : divisors)
      for (const Op op : {Op::kIDiv, Op::kMod}) {
        const ValueId by = b.Add({.code = Code::kConst, .dtype = dtype, .imm = {divisor}});
        b.Store(out, b.Plus(b.Int(row++ * kThreads), thread), b.Alu(op, dtype, {x, by}));
      }
    SCOPED_TRACE(std::string(Name(dtype)));
    ExpectRunsAsInterpreted(
        b.Take(2), {std::string(static_cast<size_t>(count * kThreads * width), '\0'), numbers});
  }
}

// Elements that a program accesses one by one; what lies between decides whether they are one
// access.
TEST(PtxPrinter, ConsecutiveElements_AreOneAccess) {
  constexpr int64_t kThreads = 32, kElements = 2 * kThreads;
  struct Case {
    const char* name;
    bool stores_between, other_index, barrier, joined;
  };
  for (const Case& c : {Case{"nothing between", false, false, false, true},
                        Case{"a store behind the same index", true, false, false, true},
                        Case{"a store behind another index", true, true, false, false},
                        Case{"a barrier", false, false, true, false}}) {
    SCOPED_TRACE(c.name);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, kElements),
                  in = b.Buffer(DType::kF32, 1, kElements);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId first = b.Times(thread, 2), second = b.Plus(first, b.Int(1));
    const ValueId other = b.Plus(b.Int(kElements - 2), b.Times(thread, -2));
    const ValueId x = b.Load(in, first);
    if (c.stores_between) b.Store(in, c.other_index ? other : first, b.Const(DType::kF32, 5));
    if (c.barrier) b.Barrier();
    const ValueId y = b.Load(in, second);
    b.Store(out, first, y);
    if (c.barrier) b.Barrier();
    b.Store(out, second, x);
    const Program program = b.Take(2);
    const auto compiled = Rendered(program);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const bool loads = absl::StrContains(compiled->object, ".v2.b32 {");
    EXPECT_EQ(loads, c.joined) << compiled->object;
    EXPECT_EQ(absl::StrContains(compiled->object, "st.global.v2"), !c.barrier) << compiled->object;
    // Threads store to each other's elements behind another index: in any order.
    if (!c.other_index)
      ExpectRunsAsInterpreted(program, {Floats(kElements, 0), Floats(kElements, 1)});
  }
}

// The bytes of a number, of which a program loads the upper one first.
TEST(PtxPrinter, TurnedPairs_AreOneAccess) {
  constexpr int64_t kThreads = 32, kElements = 2 * kThreads + 2;
  for (const bool is_even : {true, false}) {
    SCOPED_TRACE(is_even);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kU16, 0, kThreads), in = b.Buffer(DType::kU8, 1, kElements);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId first = b.Plus(b.Times(thread, 2), b.Int(is_even ? 0 : 1));
    const ValueId upper = b.Cast(b.Load(in, b.Plus(first, b.Int(1))), DType::kU16);
    const ValueId lower = b.Cast(b.Load(in, first), DType::kU16);
    const ValueId eight = b.Const(DType::kU16, 8);
    b.Store(out, thread,
            b.Alu(Op::kOr, DType::kU16, {b.Alu(Op::kShl, DType::kU16, {upper, eight}), lower}));
    const Program program = b.Take(2);
    const auto compiled = Rendered(program);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(absl::StrContains(compiled->object, "ld.global.nc.u8"), !is_even)
        << compiled->object;
    std::string bytes(static_cast<size_t>(kElements), '\0');
    for (int64_t i = 0; i < kElements; ++i)
      bytes[static_cast<size_t>(i)] = static_cast<char>(7 * i);
    ExpectRunsAsInterpreted(program,
                            {std::string(static_cast<size_t>(kThreads * 2), '\0'), bytes});
  }
}

// A value that was loaded stays as it is when its element is stored to, in a loop's next pass, too.
TEST(PtxPrinter, WhatWasLoadedOfPrivateMemory_DoesNotChange) {
  constexpr int64_t kThreads = 32, kPasses = 5;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 3 * kThreads),
                in = b.Buffer(DType::kF32, 1, kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId own = b.Alloc(Space::kPrivate, DType::kF32, 2);
  b.Store(own, b.Int(0), b.Load(in, thread));
  b.Store(own, b.Int(1), b.Const(DType::kF32, 3));
  const ValueId before = b.Load(own, b.Int(0));
  const ValueId pass = b.Loop(kPasses);
  const ValueId zero = b.Load(own, b.Int(0)), one = b.Load(own, b.Int(1));
  b.Store(own, b.Int(0), one);
  b.Store(own, b.Int(1), b.Alu(Op::kAdd, DType::kF32, {zero, before}));
  b.End(pass);
  b.Store(out, b.Times(thread, 3), b.Load(own, b.Int(0)));
  b.Store(out, b.Plus(b.Times(thread, 3), b.Int(1)), b.Load(own, b.Int(1)));
  b.Store(out, b.Plus(b.Times(thread, 3), b.Int(2)), before);
  ExpectRunsAsInterpreted(b.Take(2), {Floats(3 * kThreads, 0), Floats(kThreads, 1)});
}

// Constants go through casts as numbers: bits that another type has may be below 0 in one and above
// it in the other.
TEST(PtxPrinter, Constants_KeepTheirNumbers) {
  constexpr int64_t kThreads = 32;
  ProgramBuilder b;
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const auto cast = [&](Code code, ValueId x, DType to, int lanes = 1) {
    return b.Add({.code = code, .dtype = to, .lanes = lanes, .src = {x}});
  };
  std::vector<ValueId> numbers;  // of i64
  const auto add = [&](ValueId x) { numbers.push_back(cast(Code::kCast, x, DType::kI64)); };
  const auto integer = [&](DType dtype, int64_t value) {
    return b.Add({.code = Code::kConst, .dtype = dtype, .imm = {value}});
  };
  add(cast(Code::kBitcast, integer(DType::kI32, -1), DType::kU32));
  add(cast(Code::kBitcast, b.Const(DType::kF32, -1), DType::kU32));
  add(cast(Code::kBitcast, integer(DType::kU32, 0xfffffff0), DType::kI32));
  add(cast(Code::kBitcast, integer(DType::kI8, -3), DType::kU8));
  add(cast(Code::kBitcast, integer(DType::kU16, 0xfff0), DType::kI16));
  const ValueId two = b.Add({.code = Code::kLanes,
                             .dtype = DType::kI32,
                             .lanes = 2,
                             .src = {integer(DType::kI32, -7), integer(DType::kI32, 9)}});
  add(cast(Code::kBitcast, two, DType::kI64));
  // What a lane has that loads nothing.
  const ValueId odd = b.Alu(Op::kCmpNe, DType::kBool, {b.Modulo(thread, 2), b.Int(0)});
  std::vector<std::string> bytes;
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32})
    for (const int64_t otherwise : {IntMin(dtype), IntMax(dtype), int64_t{1}}) {
      const ValueId in = b.Buffer(dtype, static_cast<int>(bytes.size()) + 1, kThreads);
      bytes.emplace_back(static_cast<size_t>(kThreads * ByteWidth(dtype)), '\x85');
      add(b.Add({.code = Code::kLoad,
                 .dtype = dtype,
                 .src = {in, thread, odd, integer(dtype, otherwise)}}));
    }
  const auto count = static_cast<int64_t>(numbers.size());
  const ValueId out = b.Buffer(DType::kI64, 0, count * kThreads);
  for (int64_t n = 0; n < count; ++n)
    b.Store(out, b.Plus(b.Int(n * kThreads), thread), numbers[static_cast<size_t>(n)]);
  bytes.insert(bytes.begin(), std::string(static_cast<size_t>(count * kThreads * 8), '\0'));
  ExpectRunsAsInterpreted(b.Take(static_cast<int>(bytes.size())), bytes);
}

// A loop of 2^31 passes counts in 64 bits.
TEST(PtxPrinter, TheLongestLoops_CountInTheWidthOfTheirEnd) {
  for (const int64_t extent : {(int64_t{1} << 31) - 1, int64_t{1} << 31}) {
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kI64, 0, 1);
    const ValueId pass = b.Loop(extent);
    b.Store(out, b.Int(0), pass);
    b.End(pass);
    const auto compiled = Rendered(b.Take(1));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(absl::StrContains(compiled->object, "setp.lt.s64"), extent > INT32_MAX)
        << compiled->object;
  }
}

// A value that is used first behind a loop, or in a branch alone, is computed there: of what its
// sources were where it stood.
TEST(PtxPrinter, ValuesThatAreComputedLater_AreOfTheirSourcesAsTheyWere) {
  constexpr int64_t kThreads = 32, kPasses = 3;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 3 * kThreads),
                in = b.Buffer(DType::kF32, 1, kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId own = b.Alloc(Space::kPrivate, DType::kF32, 1);
  b.Store(own, b.Int(0), b.Load(in, thread));
  const ValueId twice =
      b.Alu(Op::kAdd, DType::kF32, {b.Load(own, b.Int(0)), b.Load(own, b.Int(0))});
  const ValueId pass = b.Loop(kPasses);
  b.Store(own, b.Int(0),
          b.Alu(Op::kMul, DType::kF32, {b.Load(own, b.Int(0)), b.Const(DType::kF32, 3)}));
  b.End(pass);
  const ValueId more = b.Alu(Op::kNeg, DType::kF32, {b.Load(own, b.Int(0))});
  b.Store(own, b.Int(0), b.Const(DType::kF32, 7));
  const ValueId branch = b.If(b.Less(thread, b.Int(20)));
  b.Store(out, thread, more);
  b.EndIf(branch);
  b.Store(out, b.Plus(thread, b.Int(kThreads)), twice);
  b.Store(out, b.Plus(thread, b.Int(2 * kThreads)), b.Load(own, b.Int(0)));
  ExpectRunsAsInterpreted(b.Take(2), {Floats(3 * kThreads, 0), Floats(kThreads, 1)});
}

// An index that is used before a loop and behind it is computed twice where sums fill the registers
// that a thread may have: it has none while the loop runs. Not in a branch that others come behind.
TEST(PtxPrinter, IndicesBehindTheMainLoop_AreComputedAgainWhereRegistersAreShort) {
  constexpr int64_t kThreads = 256, kSide = 16, kPasses = 3, kBlocks = 2;
  enum Place { kOutside, kInBranch, kBeforeMore };
  for (const int64_t sums : {16, 80})
    for (const Place where : {kOutside, kInBranch, kBeforeMore}) {
      SCOPED_TRACE(testing::Message() << sums << " sums, place " << where);
      ProgramBuilder b;
      const ValueId out = b.Buffer(DType::kF32, 0, 2 * kBlocks * kThreads),
                    in = b.Buffer(DType::kF32, 1, kThreads);
      const ValueId all = b.Alloc(Space::kShared, DType::kF32, kThreads);
      const ValueId block = b.Special(Grid::kBlock, kBlocks),
                    thread = b.Special(Grid::kThread, kThreads);
      const ValueId in_block =
          b.Plus(b.Times(b.Modulo(thread, kSide), kSide), b.Divide(thread, kSide));
      const ValueId place = b.Plus(in_block, b.Times(block, kThreads));
      const ValueId branch = where == kOutside ? -1 : b.If(b.Less(block, b.Int(1)));
      const ValueId own = b.Alloc(Space::kPrivate, DType::kF32, sums);
      for (int64_t s = 0; s < sums; ++s) b.Store(own, b.Int(s), b.Load(in, in_block));
      const ValueId pass = b.Loop(kPasses);
      b.Store(all, thread, b.Load(in, thread));
      b.Barrier();
      const ValueId x = b.Load(all, b.Plus(b.Int(kThreads - 1), b.Times(thread, -1)));
      for (int64_t s = 0; s < sums; ++s)
        b.Store(own, b.Int(s), b.Alu(Op::kAdd, DType::kF32, {b.Load(own, b.Int(s)), x}));
      b.Barrier();
      b.End(pass);
      b.Store(out, place, b.Load(own, b.Int(sums - 1)));
      if (branch >= 0) b.EndIf(branch);
      if (where == kBeforeMore)
        b.Store(out, b.Plus(place, b.Int(kBlocks * kThreads)), b.Const(DType::kF32, 1));
      const Program program = b.Take(2);
      const auto compiled = Rendered(program);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const std::string& text = compiled->object;
      EXPECT_EQ(absl::StrContains(text.substr(text.find("bar.sync")), "and.b32"),
                sums == 80 && where != kBeforeMore)
          << text;
      ExpectRunsAsInterpreted(program, {Floats(2 * kBlocks * kThreads, 0), Floats(kThreads, 1)});
    }
}

int CountOf(absl::string_view what, absl::string_view text) {
  int count = 0;
  for (size_t at = text.find(what); at != absl::string_view::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

// A branch for each element, as the ends of products have them: one address for all.
TEST(PtxPrinter, StoresInBranches_ShareTheirAddress) {
  constexpr int64_t kThreads = 64, kRow = 101, kStores = 8;
  // One of them so far away that its constant is none of an instruction.
  constexpr int64_t kFar = 3 << 20, kElements = kFar + kThreads * kRow + kStores;
  for (const bool loop_between : {false, true}) {
    SCOPED_TRACE(loop_between);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, kElements),
                  in = b.Buffer(DType::kF32, 1, kThreads);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId x = b.Load(in, thread), first = b.Times(thread, kRow);
    for (int64_t n = 0; n < kStores; ++n) {
      const ValueId loop = loop_between && n == kStores / 2 ? b.Loop(3) : ValueId{-1};
      const ValueId branch = b.If(b.Less(b.Plus(first, b.Int(n)), b.Int(40 * kRow + 5)));
      b.Store(out, b.Plus(first, b.Int(n == kStores - 1 ? kFar : n)), x);
      b.EndIf(branch);
      if (loop >= 0) b.End(loop);
    }
    const Program program = b.Take(2);
    const auto compiled = Rendered(program);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    // One of the load, one before the first branch.
    EXPECT_EQ(CountOf("mul.wide", compiled->object), 2) << compiled->object;
    ExpectRunsAsInterpreted(program, {Floats(kElements, 0), Floats(kThreads, 1)});
  }
}

// A gate guards the access itself. An address that is selected instead, between the element and a
// place that is always there, would cost every thread an access.
TEST(PtxPrinter, Gates_GuardTheAccessAndSelectNoAddress) {
  constexpr int64_t kThreads = 64, kInside = 50;
  for (const int lanes : {1, 4}) {
    SCOPED_TRACE(lanes);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, kThreads * lanes),
                  in = b.Buffer(DType::kF32, 1, kInside * lanes);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId index = b.Times(thread, lanes);
    const ValueId gate = b.Less(thread, b.Int(kInside)), other = b.Less(b.Int(7), thread);
    const ValueId mask = b.Splat(gate, lanes), stored = b.Splat(other, lanes);
    const ValueId x = b.Add({.code = Code::kLoad,
                             .dtype = DType::kF32,
                             .lanes = lanes,
                             .src = {in, index, mask, b.Splat(b.Const(DType::kF32, 3), lanes)}});
    b.Add({.code = Code::kStore, .lanes = lanes, .src = {out, index, x, stored}});
    const Program program = b.Take(2);
    const auto compiled = Rendered(program);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    int guarded = 0, accesses = 0;
    for (const absl::string_view line : absl::StrSplit(compiled->object, '\n')) {
      const bool access =
          absl::StrContains(line, "ld.global") || absl::StrContains(line, "st.global");
      accesses += access;
      guarded += access && absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "@%p");
    }
    EXPECT_EQ(accesses, 2) << compiled->object;
    EXPECT_EQ(guarded, 2) << compiled->object;
    EXPECT_EQ(CountOf("selp", compiled->object), 0) << compiled->object;
    ExpectRunsAsInterpreted(program,
                            {Floats(kThreads * lanes, 0), Floats(kInside * lanes, 1)});
  }
}

// What bounds and parity say of a condition: an even number below 112 has one more behind it.
TEST(PtxPrinter, ConditionsThatBoundsDecide_AreNoBranches) {
  constexpr int64_t kThreads = 64;
  for (const int64_t extent : {14, 15}) {
    SCOPED_TRACE(extent);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kBF16, 0, 2 * kThreads),
                  in = b.Buffer(DType::kBF16, 1, 2 * kThreads);
    const ValueId thread = b.Special(Grid::kThread, kThreads), pair = b.Times(thread, 2);
    const ValueId within = b.Modulo(pair, extent);
    const ValueId index = b.Plus(b.Times(b.Divide(pair, extent), 14), within);
    const ValueId x = b.Load(in, pair), y = b.Load(in, b.Plus(pair, b.Int(1)));
    const ValueId branch = b.If(b.Less(b.Plus(within, b.Int(1)), b.Int(extent)));
    b.Store(out, index, x);
    b.Store(out, b.Plus(index, b.Int(1)), y);
    b.EndIf(branch);
    const Program program = b.Take(2);
    const auto compiled = Rendered(program);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const bool is_even = extent % 2 == 0;
    EXPECT_EQ(absl::StrContains(compiled->object, "bra"), !is_even) << compiled->object;
    EXPECT_EQ(CountOf("st.global.b32", compiled->object), is_even ? 1 : 0) << compiled->object;
    // Of an odd extent two threads may store to one element.
    if (is_even)
      ExpectRunsAsInterpreted(program, {std::string(4 * kThreads, '\0'),
                                        std::string(4 * kThreads, '\x3f')});
  }
}

// Numbers that were rounded one by one and are stored together are rounded together; one that
// something else reads is rounded alone, too. What it was before stays until then.
TEST(PtxPrinter, NumbersOfAWord_AreRoundedTogether) {
  constexpr int64_t kThreads = 32;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t stride : {2, 3}) {  // of pairs, or of single numbers
      SCOPED_TRACE(testing::Message() << Name(dtype) << " " << stride);
      ProgramBuilder b;
      const ValueId out = b.Buffer(dtype, 0, 3 * kThreads),
                    sum = b.Buffer(DType::kF32, 1, kThreads),
                    in = b.Buffer(DType::kF32, 2, 2 * kThreads);
      const ValueId thread = b.Special(Grid::kThread, kThreads);
      const ValueId own = b.Alloc(Space::kPrivate, DType::kF32, 2);
      for (const int64_t n : {0, 1})
        b.Store(own, b.Int(n), b.Load(in, b.Plus(b.Times(thread, 2), b.Int(n))));
      const ValueId x = b.Cast(b.Load(own, b.Int(0)), dtype),
                    y = b.Cast(b.Load(own, b.Int(1)), dtype);
      for (const int64_t n : {0, 1}) b.Store(own, b.Int(n), b.Const(DType::kF32, 7));
      const ValueId index = b.Times(thread, stride);
      b.Store(out, index, x);
      b.Store(out, b.Plus(index, b.Int(1)), y);
      b.Store(sum, thread,
              b.Alu(Op::kAdd, DType::kF32, {b.Cast(x, DType::kF32), b.Load(own, b.Int(1))}));
      const Program program = b.Take(3);
      const auto compiled = Rendered(program);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const std::string& text = compiled->object;
      EXPECT_FALSE(absl::StrContains(text, "prmt") || absl::StrContains(text, "shr.u32")) << text;
      EXPECT_EQ(CountOf("st.global.u16", text), stride == 2 ? 0 : 2) << text;
      ExpectRunsAsInterpreted(program, {std::string(6 * kThreads, '\0'), Floats(kThreads, 0),
                                        Floats(2 * kThreads, 1)});
    }
}

}  // namespace
}  // namespace outboard::test
