// What the spec of programs refuses, and that it names pass, operation and instruction; what the
// proof of ranges shows and what it does not.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/check.h"
#include "compiler/program/program.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"

namespace outboard::program {
namespace {

// What a person reads with DEBUG=5: an instruction's numbers are printed, each as what it is.
TEST(ProgramPrint, NumbersAreSaid) {
  ProgramBuilder b;
  const ValueId four = b.Add({.code = Code::kLoad,
                              .dtype = DType::kF32,
                              .lanes = 4,
                              .src = {b.Buffer(DType::kF32, 0, 8), b.Int(0)}});
  const ValueId third =
      b.Add({.code = Code::kLane, .dtype = DType::kF32, .src = {four}, .imm = {2, 0, 0}});
  b.Add({.code = Code::kShuffle, .dtype = DType::kF32, .src = {third}, .imm = {16, 0, 0}});
  b.Add({.code = Code::kWait, .imm = {1, 0, 0}});
  const std::string text = ToString(b.Take(/*buffer_count=*/1));
  for (const char* const line : {"LANE f32 2 %", "SHUFFLE f32 16 %", "WAIT 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  EXPECT_EQ(text.find("rarely"), std::string::npos) << text;
}

struct Refusal {
  const char* rule;  // in the message
  std::function<void(ProgramBuilder&)> make;
};

TEST(ProgramSpec, RefusesWhatIsNoProgram) {
  const auto memory = [](ProgramBuilder& b) { return b.Buffer(DType::kF32, 0, 8); };
  const Refusal cases[] = {
      {"does not come before",
       [](ProgramBuilder& b) { b.Add({.code = Code::kCast, .dtype = DType::kF32, .src = {7}}); }},
      {"no value of an open scope",
       [&](ProgramBuilder& b) {
         const ValueId loop = b.Loop(4);
         b.End(loop);
         b.Store(memory(b), loop, b.Const(DType::kF32, 1));
       }},
      {"operands of two types",
       [](ProgramBuilder& b) {
         b.Alu(Op::kAdd, DType::kF32, {b.Const(DType::kF32, 1), b.Int(1)});
       }},
      {"has 1 lanes, not 4",
       [](ProgramBuilder& b) {
         const ValueId one = b.Const(DType::kF32, 1);
         b.Add({.code = Code::kAlu,
                .op = Op::kAdd,
                .dtype = DType::kF32,
                .lanes = 4,
                .src = {b.Splat(one, 4), one}});
       }},
      {"is no bool",
       [](ProgramBuilder& b) {
         b.Alu(Op::kCmpLt, DType::kF32, {b.Const(DType::kF32, 1), b.Const(DType::kF32, 2)});
       }},
      {"of floats",
       [](ProgramBuilder& b) {
         b.Alu(Op::kAnd, DType::kF32, {b.Const(DType::kF32, 1), b.Const(DType::kF32, 2)});
       }},
      {"of bf16, neither f32 nor f64",
       [](ProgramBuilder& b) {
         const ValueId x = b.Const(DType::kBF16, 1);
         b.Alu(Op::kMulAcc, DType::kBF16, {x, x, x});
       }},
      {"the first source is no memory", [](ProgramBuilder& b) { b.Load(b.Int(1), b.Int(0)); }},
      {"the index is no i64",
       [&](ProgramBuilder& b) { b.Load(memory(b), b.Const(DType::kF32, 0)); }},
      {"the value has another type",
       [&](ProgramBuilder& b) { b.Store(memory(b), b.Int(0), b.Int(0)); }},
      {"has a mask or has none",
       [&](ProgramBuilder& b) {
         b.Add({.code = Code::kLoad,
                .dtype = DType::kF32,
                .src = {memory(b), b.Int(0), b.Const(DType::kBool, 1)}});
       }},
      {"loads no buffer again",
       [&](ProgramBuilder& b) {
         b.Add({.code = Code::kLoad,
                .dtype = DType::kF32,
                .src = {b.Alloc(Space::kPrivate, DType::kF32, 4), b.Int(0)},
                .imm = {1, 0, 0}});
       }},
      {"memory of a block in a scope",
       [](ProgramBuilder& b) {
         const ValueId loop = b.Loop(4);
         b.Alloc(Space::kShared, DType::kF32, 4);
         b.End(loop);
       }},
      {"threads may enter apart",
       [](ProgramBuilder& b) {
         const ValueId branch = b.If(b.Less(b.Special(Grid::kThread, 8), b.Int(4)));
         b.Barrier();
         b.EndIf(branch);
       }},
      {"threads may enter apart",  // the limit comes from memory of the thread
       [](ProgramBuilder& b) {
         const ValueId own = b.Alloc(Space::kPrivate, DType::kI64, 1);
         b.Store(own, b.Int(0), b.Special(Grid::kThread, 8));
         const ValueId loop = b.Loop(8, How::kPlain, 1, b.Load(own, b.Int(0)));
         b.Barrier();
         b.End(loop);
       }},
      {"two extents",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 8);
         b.Special(Grid::kThread, 16);
       }},
      {"slot out of range", [](ProgramBuilder& b) { b.Buffer(DType::kF32, 9, 4); }},
      {"still to be expanded", [](ProgramBuilder& b) { b.End(b.Loop(4, How::kVector, 4)); }},
      {"closes a scope that is not the last",
       [](ProgramBuilder& b) {
         const ValueId outer = b.Loop(2), inner = b.Loop(3);
         b.End(outer);
         b.End(inner);
       }},
      {"from a buffer to memory of the block",
       [&](ProgramBuilder& b) {
         b.Add({.code = Code::kCopy,
                .src = {memory(b), b.Int(0), memory(b), b.Int(0)},
                .imm = {1, 0, 0}});
       }},
      {"the mask is no bool",
       [&](ProgramBuilder& b) {
         b.Add({.code = Code::kCopy,
                .src = {b.Alloc(Space::kShared, DType::kF32, 4), b.Int(0), memory(b), b.Int(0),
                        b.Int(1)},
                .imm = {1, 0, 0}});
       }},
      {"of no memory of the block",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 32);
         b.Add({.code = Code::kLdmatrix,
                .dtype = DType::kBF16,
                .lanes = 8,
                .src = {b.Alloc(Space::kPrivate, DType::kBF16, 256), b.Int(0)}});
       }},
      {"is not 16 bytes of the memory",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 32);
         b.Add({.code = Code::kLdmatrix,
                .dtype = DType::kF32,
                .lanes = 8,
                .src = {b.Alloc(Space::kShared, DType::kF32, 256), b.Int(0)}});
       }},
      {"threads may enter apart",
       [](ProgramBuilder& b) {
         const ValueId thread = b.Special(Grid::kThread, 32);
         const ValueId tile = b.Alloc(Space::kShared, DType::kBF16, 256);
         const ValueId branch = b.If(b.Less(thread, b.Int(4)));
         b.Add(
             {.code = Code::kLdmatrix, .dtype = DType::kBF16, .lanes = 8, .src = {tile, b.Int(0)}});
         b.EndIf(branch);
       }},
      {"no such half",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 32);
         const ValueId x = b.Const(DType::kBF16, 1);
         b.Add({.code = Code::kMma,
                .dtype = DType::kF32,
                .lanes = 4,
                .src = {b.Splat(x, 8), b.Splat(x, 4), b.Splat(b.Const(DType::kF32, 0), 4)},
                .imm = {1, 0, 0}});
       }},
      {"no whole groups",
       [](ProgramBuilder& b) {
         b.Special(Grid::kThread, 8);
         const ValueId x = b.Const(DType::kBF16, 1);
         b.Add({.code = Code::kMma,
                .dtype = DType::kF32,
                .lanes = 4,
                .src = {b.Splat(x, 8), b.Splat(x, 4), b.Splat(b.Const(DType::kF32, 0), 4)}});
       }},
      {"changes the width",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kBitcast, .dtype = DType::kF64, .src = {b.Const(DType::kF32, 1)}});
       }},
      {"changes the width",  // two lanes of four bytes are not three of two
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kBitcast,
                .dtype = DType::kBF16,
                .lanes = 3,
                .src = {b.Splat(b.Const(DType::kU32, 1), 2)}});
       }},
      {"rounded with a product",
       [](ProgramBuilder& b) {
         const ValueId x = b.Const(DType::kF32, 1);
         b.Add({.code = Code::kAlu,
                .op = Op::kMul,
                .dtype = DType::kF32,
                .src = {x, x},
                .imm = {static_cast<int64_t>(Precision::kWithProduct), 0, 0}});
       }},
      {"by a unit",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kAlu,
                .op = Op::kExp2,
                .dtype = DType::kF64,
                .src = {b.Const(DType::kF64, 1)},
                .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
       }},
      {"no inverse",
       [](ProgramBuilder& b) {
         const ValueId x = b.Const(DType::kF32, 2);
         b.Add({.code = Code::kAlu,
                .op = Op::kFDiv,
                .dtype = DType::kF32,
                .src = {x, x},
                .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
       }},
      {"in no way that there is",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kAlu,
                .op = Op::kExp2,
                .dtype = DType::kF32,
                .src = {b.Const(DType::kF32, 1)},
                .imm = {static_cast<int64_t>(Precision::kByUnit), 2, 0}});
       }},
      {"operands of other types",
       [](ProgramBuilder& b) {
         const ValueId x = b.Splat(b.Const(DType::kF32, 1), 4);
         b.Add({.code = Code::kDot, .dtype = DType::kF32, .lanes = 4, .src = {x, x, x}});
       }},
      {"is no tile of f32 or u32",
       [](ProgramBuilder& b) { b.Alloc(Space::kTile, DType::kBF16, 256); }},
      {"is no tile of f32 or u32",
       [](ProgramBuilder& b) { b.Alloc(Space::kTile, DType::kF32, 128); }},
      {"a tile in a scope",
       [](ProgramBuilder& b) {
         const ValueId loop = b.Loop(4);
         b.Alloc(Space::kTile, DType::kF32, 256);
         b.End(loop);
       }},
      {"over 8 tiles",
       [](ProgramBuilder& b) {
         for (int i = 0; i < 9; ++i) b.Alloc(Space::kTile, DType::kF32, 256);
       }},
      {"the first source is no memory",
       [](ProgramBuilder& b) { b.Load(b.Alloc(Space::kTile, DType::kF32, 256), b.Int(0)); }},
      {"the memory is not private",
       [&](ProgramBuilder& b) {
         b.Add({.code = Code::kTileLoad,
                .src = {b.Alloc(Space::kTile, DType::kF32, 256), memory(b), b.Int(0)},
                .imm = {16, 0, 0}});
       }},
      {"its rows overlap",
       [](ProgramBuilder& b) {
         b.Add({.code = Code::kTileStore,
                .src = {b.Alloc(Space::kTile, DType::kF32, 256),
                        b.Alloc(Space::kPrivate, DType::kF32, 256), b.Int(0)},
                .imm = {15, 0, 0}});
       }},
      {"operands of other types",
       [](ProgramBuilder& b) {
         const ValueId sums = b.Alloc(Space::kTile, DType::kF32, 256);
         b.Add({.code = Code::kTileDot, .src = {sums, sums, sums}});
       }},
  };
  for (const Refusal& c : cases) {
    ProgramBuilder b;
    c.make(b);
    const absl::Status status = CheckProgram(b.Take(2), "the pass");
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << c.rule;
    EXPECT_NE(status.message().find(c.rule), std::string::npos) << c.rule << "\n" << status;
    EXPECT_NE(status.message().find("after pass \"the pass\", "), std::string::npos) << status;
    EXPECT_NE(status.message().find(" at "), std::string::npos) << status;
  }
}

TEST(ProgramSpec, NamesPassOperationAndInstruction) {
  ProgramBuilder b;
  b.Alu(Op::kXor, DType::kF32, {b.Const(DType::kF32, 1), b.Const(DType::kF32, 2)});
  EXPECT_EQ(CheckProgram(b.Take(0), "hoist").message(),
            "program: after pass \"hoist\", XOR at 2: of floats: %2 = XOR f32 %0 %1");
}

TEST(ProgramRange, ShowsWhatLoopsMasksAndBranchesBound) {
  const auto check = [](const std::function<void(ProgramBuilder&, ValueId)>& make) {
    ProgramBuilder b;
    make(b, b.Buffer(DType::kF32, 0, 100));
    const Program program = b.Take(1);
    EXPECT_EQ(CheckProgram(program, "test"), absl::OkStatus());
    return proof::CheckInRange(program).ok();
  };
  const auto one = [](ProgramBuilder& b) { return b.Const(DType::kF32, 1); };
  const auto looped = [&](int64_t extent, int64_t scale, int64_t offset) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId loop = b.Loop(extent);
      b.Store(m, b.Plus(b.Times(loop, scale), b.Int(offset)), one(b));
      b.End(loop);
    });
  };
  EXPECT_TRUE(looped(100, 1, 0));
  EXPECT_FALSE(looped(101, 1, 0));
  EXPECT_FALSE(looped(100, 1, 1));
  EXPECT_FALSE(looped(10, 1, -1));
  EXPECT_TRUE(looped(10, -11, 99));
  EXPECT_FALSE(looped(11, -11, 99));
  const auto branched = [&](int64_t bound) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId index =
          b.Plus(b.Times(b.Special(Grid::kBlock, 13), 8), b.Special(Grid::kThread, 8));
      const ValueId branch = b.If(b.Less(index, b.Int(bound)));
      b.Store(m, b.Plus(b.Times(b.Divide(index, 10), 10), b.Modulo(index, 10)), one(b));
      b.EndIf(branch);
    });
  };
  EXPECT_TRUE(branched(100));
  EXPECT_FALSE(branched(101));
  const auto vector = [&](int64_t trips, int active) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId loop = b.Loop(trips);
      Instruction mask{.code = Code::kLanes, .dtype = DType::kBool, .lanes = 8};
      for (int lane = 0; lane < 8; ++lane) mask.src.push_back(b.Const(DType::kBool, lane < active));
      b.Add({.code = Code::kStore,
             .lanes = 8,
             .src = {m, b.Times(loop, 8), b.Splat(one(b), 8), b.Add(mask)}});
      b.End(loop);
    });
  };
  EXPECT_TRUE(vector(12, 8));
  EXPECT_FALSE(vector(13, 8));
  EXPECT_TRUE(vector(13, 4));
  EXPECT_FALSE(vector(13, 5));
  // A loaded index is any number; a copy reaches as far as its last element.
  EXPECT_FALSE(check([&](ProgramBuilder& b, ValueId m) {
    const ValueId places = b.Buffer(DType::kI64, 0, 100);
    b.Store(m, b.Load(places, b.Int(0)), one(b));
  }));
  const auto copied = [&](int64_t elements) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 64);
      b.Add({.code = Code::kCopy,
             .src = {tile, b.Int(0), m, b.Times(b.Special(Grid::kBlock, 3), 32)},
             .imm = {elements, 0, 0}});
    });
  };
  // A mask is of the buffer alone: zeros are written where it is false.
  const auto masked = [&](int64_t end, int64_t place) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId tile = b.Alloc(Space::kShared, DType::kF32, 64);
      const ValueId from = b.Times(b.Special(Grid::kBlock, 40), 4);
      b.Add({.code = Code::kCopy,
             .src = {tile, b.Int(place), m, from, b.Less(b.Plus(from, b.Int(3)), b.Int(end))},
             .imm = {4, 1, 0}});
    });
  };
  EXPECT_TRUE(masked(100, 60));
  EXPECT_FALSE(masked(101, 60));
  EXPECT_FALSE(masked(100, 61));
  const auto matrices = [&](int64_t rows) {
    return check([&](ProgramBuilder& b, ValueId) {
      const ValueId tile = b.Alloc(Space::kShared, DType::kBF16, 8 * rows);
      b.Add({.code = Code::kLdmatrix,
             .dtype = DType::kBF16,
             .lanes = 8,
             .src = {tile, b.Times(b.Special(Grid::kThread, 32), 8)}});
    });
  };
  EXPECT_TRUE(matrices(32));
  EXPECT_FALSE(matrices(31));
  EXPECT_TRUE(copied(36));
  EXPECT_FALSE(copied(37));
  // A loop's limit bounds its counter; a tile reaches as far as its last row.
  const auto limited = [&](int64_t most) {
    return check([&](ProgramBuilder& b, ValueId m) {
      const ValueId block = b.Loop(4);
      const ValueId left = b.Plus(b.Int(most), b.Times(block, -32));
      const ValueId loop = b.Loop(32, How::kPlain, 1, left);
      b.Store(m, b.Plus(b.Times(block, 32), loop), one(b));
      b.End(loop);
      b.End(block);
    });
  };
  EXPECT_TRUE(limited(100));
  EXPECT_FALSE(limited(101));
  const auto tiled = [&](int64_t elements) {
    return check([&](ProgramBuilder& b, ValueId) {
      b.Add({.code = Code::kTileStore,
             .src = {b.Alloc(Space::kTile, DType::kF32, 256),
                     b.Alloc(Space::kPrivate, DType::kF32, elements), b.Int(16)},
             .imm = {32, 0, 0}});
    });
  };
  EXPECT_TRUE(tiled(512));
  EXPECT_FALSE(tiled(511));
}

// A grid's threads, of which the first `bound` store: which element of a row-major array of these
// axes (innermost first, the last one not given) is found by divisions of quotients. The thread's
// last part comes off first, as where SimplifyDivisions has taken it out of the block's number.
bool GridIsShown(const std::vector<int64_t>& axes, int64_t outermost, int64_t bound) {
  constexpr int64_t kThreads = 256;
  ProgramBuilder b;
  int64_t elements = outermost;
  for (const int64_t axis : axes) elements *= axis;
  const ValueId memory = b.Buffer(DType::kF32, 0, elements);
  const ValueId block = b.Special(Grid::kBlock, (bound + kThreads - 1) / kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId branch = b.If(b.Less(b.Plus(b.Times(block, kThreads), thread), b.Int(bound)));
  std::vector<ValueId> places;  // along each axis, times what is within one of them
  ValueId rest = -1;
  int64_t step = 1;
  for (const int64_t axis : axes) {
    const bool first = rest < 0;
    OB_CHECK(!first || kThreads % axis == 0);
    places.push_back(b.Times(b.Modulo(first ? thread : rest, axis), step));
    rest = first ? b.Plus(b.Times(block, kThreads / axis), b.Divide(thread, axis))
                 : b.Divide(rest, axis);
    step *= axis;
  }
  ValueId place = b.Times(rest, step);
  for (; !places.empty(); places.pop_back()) place = b.Plus(place, places.back());
  b.Store(memory, place, b.Const(DType::kF32, 1));
  b.EndIf(branch);
  const Program program = b.Take(1);
  OB_CHECK_OK(CheckProgram(program, "test"));
  return proof::CheckInRange(program).ok();
}

TEST(ProgramRange, ShowsAGridThatIsDividedByManyAxes) {
  // The gradient of a strided convolution's input, whose last axes are divided once more.
  EXPECT_TRUE(GridIsShown({2, 5, 2, 5, 8}, 2, 1600));
  EXPECT_FALSE(GridIsShown({2, 5, 2, 5, 8}, 2, 1601));
  const std::vector<int64_t> many = {4, 3, 7, 2, 5, 2, 3, 8, 3, 2};
  constexpr int64_t kMany = int64_t{4} * 3 * 7 * 2 * 5 * 2 * 3 * 8 * 3 * 2 * 5;
  EXPECT_TRUE(GridIsShown(many, 5, kMany));
  EXPECT_FALSE(GridIsShown(many, 5, kMany + 1));
}

}  // namespace
}  // namespace outboard::program
