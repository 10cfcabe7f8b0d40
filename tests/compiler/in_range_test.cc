// The proof that kernels stay in their buffers: what it must show, what it must not, and that it is
// never wrong on random kernels, which a walk of every element decides.
#include "compiler/proof/in_range.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/expand.h"
#include "compiler/program/program.h"
#include "compiler/proof/program_range.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

constexpr DType kF = DType::kF32;

const UOp* C(Graph& g, int64_t value) { return ConstIndex(g, value); }
const UOp* Sub(Graph& g, const UOp* a, const UOp* b) { return Add(g, a, Mul(g, b, C(g, -1))); }
const UOp* Div(Graph& g, const UOp* a, int64_t b) { return Alu(g, Op::kIDiv, a, C(g, b)); }
const UOp* Mod(Graph& g, const UOp* a, int64_t b) { return Alu(g, Op::kMod, a, C(g, b)); }
const UOp* Less(Graph& g, const UOp* a, const UOp* b) { return Alu(g, Op::kCmpLt, a, b); }
const UOp* And(Graph& g, const UOp* a, const UOp* b) { return Alu(g, Op::kAnd, a, b); }
const UOp* Zero(Graph& g) { return ConstFloat(g, kF, 0); }

// `steps` elements, each a load of slot 1 at `index`, where `gate` holds.
const UOp* Gather(Graph& g, const UOp* r, int64_t elements, const UOp* index,
                  const UOp* gate = nullptr) {
  const UOp* const load = gate == nullptr ? LoadAt(g, 1, kF, elements, index)
                                          : GatedLoadAt(g, 1, kF, elements, index, gate, Zero(g));
  return Sink(g, {StoreAt(g, 0, RangeOf(r).extent(), r, load)});
}
const UOp* Loaded(Graph& g, DType dtype, const UOp* r) {
  return Cast(g, LoadAt(g, 2, dtype, RangeOf(r).extent(), r), DType::kI64);
}

struct Case {
  std::string name;
  std::function<const UOp*(Graph&)> kernel;
};

// Each of them differs from one of kProved by a fault that a compiler could make.
const Case kFaults[] = {
    {"one too far", [](Graph& g) { return Gather(g, Range(g, 0, 65), 64, Range(g, 0, 65)); }},
    {"one before",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Add(g, r, C(g, -1)));
     }},
    {"store too far",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Sink(g, {StoreAt(g, 0, 63, r, LoadAt(g, 1, kF, 64, r))});
     }},
    {"flipped, off by one",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Sub(g, C(g, 64), r));
     }},
    {"window without guard",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Add(g, r, C(g, 2)));
     }},
    {"guard of the other side",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Add(g, r, C(g, -2));
       return Gather(g, r, 64, at, Less(g, at, C(g, 64)));
     }},
    {"guard with or",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Add(g, r, C(g, -2));
       return Gather(g, r, 64, at, Alu(g, Op::kOr, Less(g, C(g, -1), at), Less(g, at, C(g, 64))));
     }},
    {"negated guard",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, at,
                     Alu(g, Op::kXor, Within(g, at, 64), ConstInt(g, DType::kBool, 1)));
     }},
    {"guard one too wide",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI32, r);
       return Gather(g, r, 64, at, Within(g, at, 65));
     }},
    {"gather without guard",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Loaded(g, DType::kI64, r));
     }},
    {"gather by u8, short table",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 255, Loaded(g, DType::kU8, r));
     }},
    {"gather by i8",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 256, Loaded(g, DType::kI8, r));
     }},
    {"row of a variable, one too many",
     [](Graph& g) {
       const UOp* const r = Range(g, 0, 8);
       return Gather(g, r, 64, Add(g, Mul(g, Var(g, 0, 0, 8), C(g, 8)), r));
     }},
    {"up to a variable that is short enough",
     [](Graph& g) {
       const UOp* const r = g.MakeChecked(Op::kRange, DType::kI64, {Var(g, 0, 0, 64)}, {0, 65, 0});
       return Gather(g, r, 64, r);
     }},
    // Every corner of the box is in range, the inside is not.
    {"stride cancels",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *s = Mod(g, r, 8);
       return Gather(g, r, 8, Sub(g, Mul(g, s, s), Mul(g, s, C(g, 7))));
     }},
    // The guard speaks of the row, the index of row * 8 + column with a column of 9.
    {"row guarded, column not",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 63), *row = Add(g, Div(g, r, 9), C(g, -1)),
                 *column = Mod(g, r, 9);
       return Gather(g, r, 48, Add(g, Mul(g, row, C(g, 8)), column), Within(g, row, 6));
     }},
    {"product wraps",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *row = Loaded(g, DType::kI64, r);
       const UOp* const at = Mul(g, row, C(g, int64_t{1} << 40));
       return Gather(g, r, 64, at, Less(g, row, C(g, 1)));
     }},
    // x + 2^62 < 2^62 + 64 and x + 2^62 > -1 also hold for x near -2^62.
    {"sum of the guard wraps",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       const UOp* const moved = Add(g, at, C(g, INT64_MAX));
       return Gather(g, r, 64, at, Less(g, moved, C(g, INT64_MIN + 64)));
     }},
    {"i32 product wraps",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *row = LoadAt(g, 2, DType::kI32, 64, r);
       const UOp* const wrapped = Mul(g, row, ConstInt(g, DType::kI32, 1 << 20));
       return Gather(g, r, 64, Cast(g, wrapped, DType::kI64),
                     Within(g, Cast(g, row, DType::kI64), 64));
     }},
    {"narrowing cast",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       const UOp* const narrow = Cast(g, Cast(g, at, DType::kI8), DType::kI64);
       return Gather(g, r, 64, at, Within(g, narrow, 64));
     }},
    {"u64 read as signed",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = LoadAt(g, 2, DType::kU64, 64, r);
       return Gather(g, r, 64, Cast(g, at, DType::kI64),
                     Less(g, Cast(g, at, DType::kI64), C(g, 64)));
     }},
    {"remainder of a negative",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Mod(g, Loaded(g, DType::kI32, r), 64));
     }},
    {"remainder by zero",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kU16, r);
       return Gather(g, r, 64, Alu(g, Op::kMod, x, Mod(g, r, 64)));
     }},
    {"quotient by what may be 0",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, Alu(g, Op::kIDiv, r, x));
     }},
    {"clamped at the wrong end",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, Alu(g, Op::kMax, x, C(g, 0)));
     }},
    {"chosen the wrong way round",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, Where(g, Within(g, x, 64), C(g, 0), x));
     }},
    {"sum over a loop",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *k = ReduceRange(g, 1, 9);
       return Gather(g, r, 64, Fold(g, Op::kAdd, k, {k}));  // 36 at most; see kProved for 8
     }},
};

const Case kProved[] = {
    {"all of it", [](Graph& g) { return Gather(g, Range(g, 0, 64), 64, Range(g, 0, 64)); }},
    {"flipped",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Sub(g, C(g, 63), r));
     }},
    {"split and joined",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 60);
       return Gather(g, r, 60, Add(g, Mul(g, Mod(g, r, 12), C(g, 5)), Div(g, r, 12)));
     }},
    {"window with guard",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Add(g, r, C(g, -2));
       return Gather(g, r, 60, at, Within(g, at, 60));
     }},
    {"guard written the other way",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 60, Add(g, r, C(g, -2)),
                     And(g, Less(g, C(g, 1), r), Less(g, r, C(g, 62))));
     }},
    {"row guarded, column within",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *row = Add(g, Div(g, r, 8), C(g, -1)),
                 *column = Mod(g, r, 8);
       return Gather(g, r, 48, Add(g, Mul(g, row, C(g, 8)), column), Within(g, row, 6));
     }},
    {"gather with guard",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, at, Within(g, at, 64));
     }},
    {"rows by a guarded number",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *row = LoadAt(g, 2, DType::kI64, 8, Div(g, r, 8));
       return Gather(g, r, 800, Add(g, Mul(g, row, C(g, 8)), Mod(g, r, 8)), Within(g, row, 100));
     }},
    {"not outside",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       const UOp* const outside = Alu(g, Op::kOr, Less(g, at, C(g, 0)), Less(g, C(g, 63), at));
       return Gather(g, r, 64, at, Alu(g, Op::kCmpNe, outside, ConstInt(g, DType::kBool, 1)));
     }},
    {"equal to a counter",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *at = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, at, Alu(g, Op::kCmpEq, at, r));
     }},
    {"gather by u8",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 256, Loaded(g, DType::kU8, r));
     }},
    {"remainder",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Mod(g, Loaded(g, DType::kU32, r), 64));
     }},
    {"masked",
     [](Graph& g) {
       const UOp* r = Range(g, 0, 64);
       return Gather(g, r, 64, Alu(g, Op::kAnd, Loaded(g, DType::kI64, r), C(g, 63)));
     }},
    {"clamped",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kI64, r);
       const UOp* const below = Where(g, Less(g, x, C(g, 64)), x, C(g, 63));
       return Gather(g, r, 64, Alu(g, Op::kMax, below, C(g, 0)));
     }},
    {"chosen where it is in range",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *x = Loaded(g, DType::kI64, r);
       return Gather(g, r, 64, Where(g, Within(g, x, 64), x, C(g, 0)));
     }},
    {"sum over a loop",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 64), *k = ReduceRange(g, 1, 8);
       return Gather(g, r, 64, Fold(g, Op::kAdd, k, {k}));
     }},
    {"row of a variable",
     [](Graph& g) {
       const UOp* const r = Range(g, 0, 8);
       return Gather(g, r, 64, Add(g, Mul(g, Var(g, 0, 0, 7), C(g, 8)), r));
     }},
    {"up to a variable",  // the end is no reason: a loop may go beyond it
     [](Graph& g) {
       const UOp* const r = g.MakeChecked(Op::kRange, DType::kI64, {Var(g, 0, 0, 64)}, {0, 64, 0});
       return Gather(g, r, 64, r);
     }},
    {"nothing to do",
     [](Graph& g) { return Gather(g, Range(g, 0, 0), 1, Add(g, Range(g, 0, 0), C(g, 7))); }},
    {"a loop without steps",
     [](Graph& g) {
       const UOp *r = Range(g, 0, 4), *k = ReduceRange(g, 1, 0);
       return Sink(g, {StoreAt(g, 0, 4, r, Fold(g, Op::kAdd, LoadAt(g, 1, kF, 0, k), {k}))});
     }},
    {"convolution",
     [](Graph& g) {
       return ConvForward(g, {4, 3, 8, 5, 12, 12});
     }},
    {"gradient of its weights",
     [](Graph& g) {
       return ConvWeightGradient(g, {4, 3, 8, 5, 12, 12});
     }},
    {"gradient of its input",
     [](Graph& g) {
       return ConvInputGradient(g, {4, 3, 8, 5, 12, 12}, true);
     }},
};

TEST(InRange, Shown) {
  for (const Case& c : kProved) {
    Graph g;
    const UOp* const sink = c.kernel(g);
    EXPECT_EQ(proof::CheckInRange(sink), absl::OkStatus()) << c.name;
    EXPECT_EQ(ValueOrDie(proof::GuardUnproved(g, sink)), sink) << c.name;
  }
}

TEST(InRange, PlantedFaults) {
  for (const Case& c : kFaults) {
    Graph g;
    const UOp* const sink = c.kernel(g);
    EXPECT_EQ(proof::CheckInRange(sink).code(), absl::StatusCode::kInternal) << c.name;
    const auto guarded = proof::GuardUnproved(g, sink);
    if (GlobalOfAccess(sink->src[0]).elements() == 63 && c.name == "store too far") {
      EXPECT_EQ(guarded.status().code(), absl::StatusCode::kInternal) << c.name;
      continue;
    }
    ASSERT_TRUE(guarded.ok()) << c.name << guarded.status();
    EXPECT_EQ(proof::CheckInRange(*guarded), absl::OkStatus()) << c.name;
    Buffers buffers = RandomBuffers(*guarded, 1, /*wild=*/true);
    EXPECT_EQ(WalkKernel(*guarded, buffers), absl::OkStatus()) << c.name;
  }
}

// Index arithmetic at random, over small loops and loaded numbers of every kind.
class RandomIndex {
 public:
  RandomIndex(Graph& g, uint32_t seed) : g_(g), random_(seed) {}

  const UOp* Kernel() {
    const UOp *r = Range(g_, 0, 1 + Number(24)), *k = ReduceRange(g_, 1, 1 + Number(6));
    pool_ = {r, k, C(g_, 0), C(g_, 1)};
    for (const DType dtype : {DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kU64})
      if (Number(3) == 0) pool_.push_back(Loaded(g_, dtype, r));
    for (int i = 0; i < 6; ++i) pool_.push_back(Expression());
    const UOp* const index = pool_[pool_.size() - 1 - Number(2)];
    const int64_t elements = 1 + Number(64);
    const UOp* const load =
        Number(4) == 0 ? LoadAt(g_, 1, kF, elements, index)
                       : GatedLoadAt(g_, 1, kF, elements, index, Gate(index, elements), Zero(g_));
    return Sink(g_, {StoreAt(g_, 0, RangeOf(r).extent(), r, Fold(g_, Op::kAdd, load, {k}))});
  }

 private:
  int64_t Number(int64_t below) { return static_cast<int64_t>(random_() % below); }
  const UOp* Any() { return pool_[Number(static_cast<int64_t>(pool_.size()))]; }

  const UOp* Condition() {
    const Op op = std::array{Op::kCmpLt, Op::kCmpLt, Op::kCmpEq, Op::kCmpNe}[Number(4)];
    return Alu(g_, op, Any(), Number(2) == 0 ? Any() : C(g_, Number(40) - 8));
  }
  const UOp* Gate(const UOp* index, int64_t elements) {
    const UOp* gate = Number(3) != 0 ? Within(g_, index, elements + (Number(8) == 0)) : Condition();
    if (Number(3) == 0) gate = Alu(g_, Number(4) ? Op::kAnd : Op::kOr, Condition(), gate);
    if (Number(6) == 0) gate = Alu(g_, Op::kXor, gate, ConstInt(g_, DType::kBool, Number(2)));
    return gate;
  }
  const UOp* Expression() {
    const int64_t big = Number(12) == 0 ? (int64_t{1} << (Number(62) + 1)) : 0;
    const UOp* const number = C(g_, big != 0 ? big : Number(20) - 6);
    switch (Number(12)) {
      case 0:
      case 1: return Add(g_, Any(), Number(2) ? number : Any());
      case 2:
      case 3: return Mul(g_, Any(), Number(4) ? number : Any());
      case 4: return Sub(g_, number, Any());
      case 5: return Alu(g_, Op::kMod, Any(), Number(5) ? number : Any());
      case 6: return Alu(g_, Op::kIDiv, Any(), Number(5) ? number : Any());
      case 7: return Alu(g_, Op::kMax, Any(), Number(2) ? number : Any());
      case 8: return Where(g_, Condition(), Any(), Any());
      case 9: {
        const DType narrow =
            std::array{DType::kI8, DType::kU8, DType::kI32, DType::kU64, DType::kBool}[Number(5)];
        return Cast(g_, Cast(g_, Any(), narrow), DType::kI64);
      }
      case 10: return Alu(g_, std::array{Op::kAnd, Op::kOr, Op::kXor}[Number(3)], Any(), number);
      default: return Alu(g_, Number(2) ? Op::kShr : Op::kShl, Any(), C(g_, Number(70) - 2));
    }
  }

  Graph& g_;
  std::mt19937 random_;
  std::vector<const UOp*> pool_;
};

TEST(InRange, NeverWrongOnRandomKernels) {
  constexpr uint32_t kKernels = 4000;
  int shown = 0, out_of_range = 0;
  for (uint32_t seed = 0; seed < kKernels; ++seed) {
    Graph g;
    const UOp* const sink = RandomIndex(g, seed).Kernel();
    // Three fillings of the indices, none of which may leave a buffer that the proof has passed.
    bool leaves = false;
    for (uint32_t filling = 0; filling < 3; ++filling) {
      Buffers buffers = RandomBuffers(sink, seed + filling, /*wild=*/true);
      leaves = leaves || !WalkKernel(sink, buffers).ok();
    }
    const bool is_shown = proof::CheckInRange(sink).ok();
    ASSERT_FALSE(leaves && is_shown) << "seed " << seed << "\n" << GraphToString(sink);
    shown += is_shown;
    out_of_range += leaves;
    const UOp* const guarded = ValueOrDie(proof::GuardUnproved(g, sink));
    ASSERT_EQ(proof::CheckInRange(guarded), absl::OkStatus()) << "seed " << seed;
    Buffers buffers = RandomBuffers(guarded, seed, /*wild=*/true);
    ASSERT_EQ(WalkKernel(guarded, buffers), absl::OkStatus()) << "seed " << seed;
  }
  // Else the kernels are no test of either answer.
  EXPECT_GT(shown, kKernels / 4);
  EXPECT_GT(out_of_range, kKernels / 8);
}

// A million steps of arithmetic, conditions within conditions: an answer in bounded time and stack.
TEST(InRange, HostileIndicesGetGuards) {
  const std::function<const UOp*(Graph&, const UOp*)> hostile[] = {
      [](Graph& g, const UOp* x) {
        for (int i = 0; i < 100'000; ++i)
          x = Mod(g, Add(g, x, C(g, i % 7 + 1)), i % 5 + 3 + (i << 3));
        return x;
      },
      [](Graph& g, const UOp* x) {
        for (int i = 0; i < 5'000; ++i)
          x = Where(g, Less(g, x, C(g, i)), Add(g, x, C(g, 1)), Mul(g, x, C(g, -1)));
        return x;
      },
  };
  for (const auto& index : hostile) {
    Graph g;
    const UOp* const r = Range(g, 0, 16);
    const UOp* const sink = Gather(g, r, 16, index(g, Loaded(g, DType::kI64, r)));
    EXPECT_FALSE(proof::CheckInRange(sink).ok());
    EXPECT_EQ(proof::CheckInRange(ValueOrDie(proof::GuardUnproved(g, sink))), absl::OkStatus());
  }
}

// Many accesses, each of which takes all steps of its own at a place of very many terms, and of
// which conditions speak that almost suffice: all of them together have a bound, and what is stored
// is proved in spite of it.
TEST(InRange, TheProofsOfAKernelHaveABound) {
  constexpr int64_t kTerms = 100, kLoads = 200, kConditions = 16, kWorkOfLoads = 4'000'000,
                    kWorkOfProgram = 32'000'000;
  constexpr int64_t kMore = 500'000;  // the step that passes the bound, and the store
  Graph g;
  const UOp* const r = Range(g, 0, 4096);
  std::vector<const UOp*> terms;
  for (int64_t i = 0; i < kTerms; ++i)
    terms.push_back(Mod(g, Mul(g, r, C(g, i + 3)), 5 + i));
  const UOp* const zero = C(g, 0);
  const auto sum_of = [&](int64_t first, int64_t step) {
    const UOp* sum = zero;
    for (int64_t i = first; i < kTerms; i += step) sum = Add(g, sum, terms[i]);
    return sum;
  };
  const UOp* const place = sum_of(0, 1);
  const UOp* gate = Less(g, sum_of(0, 2), C(g, 1000));
  for (int64_t i = 1; i < kConditions; ++i)
    gate = And(g, gate, Less(g, sum_of(i, i % 3 + 1), C(g, 1000 + i)));
  const auto kernel_with = [&](int64_t elements) {
    const UOp* total = Zero(g);
    for (int64_t i = 0; i < kLoads; ++i)
      total = Alu(g, Op::kAdd, total,
                  GatedLoadAt(g, 1, kF, elements, Add(g, place, C(g, i)), gate, Zero(g)));
    return Sink(g, {StoreAt(g, 0, 4096, r, total)});
  };
  const UOp* const sink = kernel_with(900);
  int64_t work = 0;
  const UOp* const guarded = ValueOrDie(proof::GuardUnproved(g, sink, &work));
  EXPECT_NE(guarded, sink);
  EXPECT_GT(work, kWorkOfLoads) << "no test of the bound";
  EXPECT_LT(work, kWorkOfLoads + kMore);
  EXPECT_EQ(proof::CheckInRange(guarded), absl::OkStatus());

  // Likewise of a program. It is made for a larger buffer, so that it has no guards.
  const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(kernel_with(1 << 20)));
  program::Program program =
      ValueOrDie(program::ExpandThreads(nest, program::MapToThreads(nest, 256)));
  EXPECT_EQ(proof::CheckInRange(program), absl::OkStatus());
  for (program::Instruction& i : program.code)
    if (i.code == program::Code::kBuffer && i.imm[1] == 1 << 20) i.imm[1] = 900;
  EXPECT_EQ(proof::UnprovedAccesses(program, &work).size(), kLoads);
  EXPECT_GT(work, kWorkOfProgram) << "no test of the bound";
  EXPECT_LT(work, kWorkOfProgram + kMore);
}

// What people write costs nothing: every access of every kernel is shown without a guard.
TEST(InRange, ProgramsNeedNoGuards) {
  for (const Program& program : Programs()) {
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    for (const schedule::ScheduledKernel& kernel : schedule.kernels)
      EXPECT_EQ(proof::CheckInRange(kernel.ast), absl::OkStatus()) << program.name << "\n"
                                                                   << GraphToString(kernel.ast);
  }
}

}  // namespace
}  // namespace outboard::test
