// Operations and conversions with constant operands, which printers fold or write into
// instructions: every one of every type, at the ends of its range and around them, as PTX on the
// PTX machine and as x86-64 code, against the interpreter of programs. The programs are put
// together without ProgramBuilder, which folds constants itself; that it folds them to the same
// results is a test, too. x86-64 and NVIDIA's assembler get one row in 37 of each type.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "compiler/program/spec.h"
#include "compiler/render/llvm/x86.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/operand_rows.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::Instruction;
using program::Program;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

constexpr const char* kEachArch[] = {"sm_80", "sm_90a"};

// Whether docs/semantics.md has the operation for that type: the graph's spec says it.
bool Takes(Op op, DType dtype) {
  Graph g;
  const UOp* const x = IsFloat(dtype) ? ConstFloat(g, dtype, 1) : ConstInt(g, dtype, 1);
  std::vector<const UOp*> src(IsUnary(op) ? 1 : IsBinary(op) ? 2 : 3, x);
  if (op == Op::kWhere) src[0] = ConstInt(g, DType::kBool, 1);
  return g.Make(op, DType::kVoid, src).ok();
}

std::vector<Op> OperationsOf(DType dtype) {
  std::vector<Op> all;
  for (int number = 0; number < kOpCodeMax; ++number)
    if (const Op op = static_cast<Op>(number);
        IsAlu(op) && !IsTranscendental(op) && Takes(op, dtype))
      all.push_back(op);
  return all;
}

// ---- what the programs compute

// Every pair of constants, and each constant beside what is loaded.
void AddOperation(Rows& rows, Op op, DType dtype) {
  const std::vector<int64_t> edges = EdgesOf(dtype);
  const DType result = IsCompare(op) ? DType::kBool : dtype;
  const std::string name(Name(op));
  std::vector<ValueId> constants;
  std::vector<std::string> texts;
  for (const int64_t number : edges) {
    constants.push_back(rows.Const(dtype, number));
    texts.push_back(absl::StrCat(std::string(Name(dtype)), " ", NumberText(dtype, number)));
  }
  const ValueId loaded = rows.Loaded(dtype);
  const auto keep = [&](std::initializer_list<ValueId> src, const std::string& what) {
    rows.Keep(rows.Alu(op, result, src), absl::StrCat(name, " ", what));
  };
  const size_t count = constants.size();
  if (IsUnary(op)) {
    for (size_t a = 0; a < count; ++a) keep({constants[a]}, texts[a]);
    return;
  }
  if (IsBinary(op)) {
    for (size_t a = 0; a < count; ++a) {
      keep({constants[a], loaded}, texts[a] + ", loaded");
      keep({loaded, constants[a]}, "loaded, " + texts[a]);
      for (size_t b = 0; b < count; ++b)
        keep({constants[a], constants[b]}, texts[a] + ", " + texts[b]);
    }
    return;
  }
  // Three: each constant or loaded.
  const ValueId other = rows.Alu(Op::kMax, dtype, {loaded, constants[0]});
  const bool selects = op == Op::kWhere;
  for (size_t a = 0; a < (selects ? 3 : count); ++a)
    for (size_t b = 0; b < count; b += 3)
      for (size_t c = 0; c < count; c += 4)
        for (int which = 0; which < 4; ++which) {
          const ValueId first = !selects ? constants[a]
                                : a < 2  ? rows.Const(DType::kBool, static_cast<int64_t>(a))
                                         : rows.Loaded(DType::kBool);
          const ValueId second = (which & 1) != 0 ? loaded : constants[b],
                        third = (which & 2) != 0 ? other : constants[c];
          keep({first, second, third},
               absl::StrCat(a, ", ", texts[b], ", ", texts[c], " form ", which));
          if (!selects) keep({second, first, third}, absl::StrCat(texts[b], " * ", texts[a]));
        }
}

bool IsNanBits(DType dtype, int64_t number) {
  return IsFloat(dtype) && std::isnan(std::bit_cast<double>(number));
}

// Each constant of the type to every type, and from there as other bits.
void AddConversions(Rows& rows, DType from) {
  for (const int64_t number : EdgesOf(from)) {
    const ValueId x = rows.Const(from, number);
    const std::string what = absl::StrCat(std::string(Name(from)), " ", NumberText(from, number));
    for (const DType to : AllTypes()) {
      const ValueId y = rows.Cast(Code::kCast, x, to);
      const std::string there = absl::StrCat(what, " to ", std::string(Name(to)));
      rows.Keep(y, there);
      // The bits of a NaN are any.
      const bool has_bits = !IsBool(to) && !(IsFloat(to) && IsNanBits(from, number));
      for (const DType bits : AllTypes()) {
        if (!has_bits || IsBool(bits) || ByteWidth(bits) != ByteWidth(to)) continue;
        const ValueId z = rows.Cast(Code::kBitcast, y, bits);
        const std::string over = absl::StrCat(there, " as bits of ", std::string(Name(bits)));
        rows.Keep(z, over);
        for (const DType last : {DType::kI64, DType::kF32, DType::kBool})
          rows.Keep(rows.Cast(Code::kCast, z, last),
                    absl::StrCat(over, " to ", std::string(Name(last))));
      }
    }
  }
}

// Vectors of constants and loaded numbers: stored, converted, taken apart, as other bits.
void AddVectors(Rows& rows, DType dtype) {
  std::vector<int64_t> edges;
  for (const int64_t number : EdgesOf(dtype))
    if (!IsNanBits(dtype, number)) edges.push_back(number);
  const auto width = static_cast<size_t>(ByteWidth(dtype));
  const auto text = [&](size_t lanes, size_t first, size_t kind) {
    return absl::StrCat(lanes, " lanes of ", std::string(Name(dtype)), " from edge ", first, ", ",
                        kind == 0   ? "constants"
                        : kind == 1 ? "every other one loaded"
                                    : "one of three loaded");
  };
  // What is loaded decides which of two it is: it may be no NaN, whose bits are any.
  const ValueId either = rows.Alu(
      Op::kWhere, dtype,
      {rows.Loaded(DType::kBool), rows.Const(dtype, edges[1]), rows.Const(dtype, edges.back())});
  for (size_t lanes = 1; lanes <= kMostLanes; lanes *= 2)
    for (size_t first = 0; first < edges.size(); first += 3)
      for (size_t kind = 0; kind < 3; ++kind) {
        std::vector<ValueId> parts;
        for (size_t k = 0; k < lanes; ++k)
          parts.push_back(kind > 0 && (k + first) % (kind + 1) == 0
                              ? either
                              : rows.Const(dtype, edges[(first + k) % edges.size()]));
        const ValueId all = rows.Lanes(dtype, parts);
        const std::string what = text(lanes, first, kind);
        rows.Keep(all, what);
        for (const DType to : AllTypes()) {
          const auto count = static_cast<int>(lanes);
          rows.Keep(rows.Cast(Code::kCast, all, to, count),
                    absl::StrCat(what, " to ", std::string(Name(to))));
          const auto bits_width = static_cast<size_t>(ByteWidth(to));
          const size_t bits = lanes * width / bits_width;
          if (IsBool(dtype) || IsBool(to) || bits == 0 || bits > kMostLanes ||
              bits * bits_width != lanes * width)
            continue;
          rows.Keep(rows.Cast(Code::kBitcast, all, to, static_cast<int>(bits)),
                    absl::StrCat(what, " as bits of ", std::string(Name(to))));
        }
      }
}

// Loads whose masks and otherwise-values are constants in some lanes, and stores with such masks.
void AddMasks(Rows& rows, DType dtype) {
  const std::vector<int64_t> edges = EdgesOf(dtype);
  const ValueId is_odd =
      rows.Alu(Op::kCmpNe, DType::kBool,
               {rows.Alu(Op::kMod, DType::kI64, {rows.thread(), rows.Int(2)}), rows.Int(0)});
  for (size_t lanes = 1; lanes <= kMostLanes; lanes *= 2)
    for (size_t first = 0; first < edges.size(); first += 2)
      for (int kind = 0; kind < 6; ++kind) {
        std::vector<ValueId> masks, otherwise;
        for (size_t k = 0; k < lanes; ++k) {
          const int which = kind < 3 ? kind : static_cast<int>(k + first) % (kind - 1);
          masks.push_back(which == 2 ? is_odd : rows.Const(DType::kBool, which % 2));
          otherwise.push_back(rows.Const(dtype, edges[(first + k) % edges.size()]));
        }
        const auto count = static_cast<int>(lanes);
        const ValueId mask = rows.Lanes(DType::kBool, masks), others = rows.Lanes(dtype, otherwise);
        const ValueId index = rows.Alu(Op::kMul, DType::kI64, {rows.thread(), rows.Int(count)});
        const std::string what = absl::StrCat(lanes, " lanes of ", std::string(Name(dtype)),
                                              " by mask ", kind, ", otherwise edge ", first);
        rows.Keep(rows.Add({.code = Code::kLoad,
                            .dtype = dtype,
                            .lanes = count,
                            .src = {rows.In(dtype), index, mask, others}}),
                  what);
        if (!rows.IsNext()) continue;
        const ValueId row = rows.Row(dtype, count, "stored: " + what);
        rows.Store(dtype, row, others);
        rows.Add(
            {.code = Code::kStore,
             .lanes = count,
             .src = {rows.Out(dtype), row,
                     rows.Lanes(dtype, std::vector<ValueId>(lanes, rows.Loaded(dtype))), mask}});
      }
}

// Branches and loops that constants decide, and private memory under constant masks.
void AddControl(Rows& rows) {
  for (const int64_t taken : {0, 1}) {
    const ValueId row = rows.Row(DType::kI32, 1, absl::StrCat("IF ", taken));
    const ValueId branch = rows.Add({.code = Code::kIf, .src = {rows.Const(DType::kBool, taken)}});
    rows.Store(DType::kI32, row, rows.Const(DType::kI32, -5));
    rows.Add({.code = Code::kEndIf, .src = {branch}});
  }
  const ValueId loaded = rows.Loaded(DType::kI64);
  const ValueId passes = rows.Add({.code = Code::kAlloc,
                                   .dtype = DType::kI64,
                                   .lanes = 0,
                                   .imm = {static_cast<int64_t>(Space::kPrivate), 1}});
  const auto count = [&](int64_t extent, ValueId limit, const std::string& what) {
    rows.Add({.code = Code::kStore, .src = {passes, rows.Int(0), rows.Int(0)}});
    Instruction loop{.code = Code::kLoop, .dtype = DType::kI64, .imm = {extent, 0, 1}};
    if (limit >= 0) loop.src = {limit};
    const ValueId counter = rows.Add(loop);
    const ValueId before =
        rows.Add({.code = Code::kLoad, .dtype = DType::kI64, .src = {passes, rows.Int(0)}});
    const ValueId more = rows.Alu(Op::kAdd, DType::kI64, {counter, rows.Int(1)});
    rows.Add({.code = Code::kStore,
              .src = {passes, rows.Int(0), rows.Alu(Op::kAdd, DType::kI64, {before, more})}});
    rows.Add({.code = Code::kEnd, .src = {counter}});
    rows.Keep(rows.Add({.code = Code::kLoad, .dtype = DType::kI64, .src = {passes, rows.Int(0)}}),
              absl::StrCat("LOOP of ", extent, " up to ", what));
  };
  for (const int64_t extent : {0, 1, 3}) {
    count(extent, -1, "its end");
    count(extent, loaded, "a loaded number");
    for (const int64_t limit : EdgesOf(DType::kI64))
      count(extent, rows.Int(limit), absl::StrCat(limit));
  }
  for (const DType dtype : AllTypes()) {
    const std::vector<int64_t> edges = EdgesOf(dtype);
    constexpr int64_t kElements = 4;
    const ValueId own = rows.Add({.code = Code::kAlloc,
                                  .dtype = dtype,
                                  .lanes = 0,
                                  .imm = {static_cast<int64_t>(Space::kPrivate), kElements}});
    const ValueId some = rows.Alu(Op::kMod, DType::kI64, {rows.thread(), rows.Int(kElements)});
    for (int64_t k = 0; k < kElements; ++k) {
      const ValueId number = rows.Const(dtype, edges[static_cast<size_t>(k) % edges.size()]);
      rows.Add({.code = Code::kStore, .src = {own, rows.Int(k), number}});
    }
    for (const int64_t on : {0, 1}) {
      const ValueId mask = rows.Const(DType::kBool, on);
      const std::string what =
          absl::StrCat("private memory of ", std::string(Name(dtype)), " by mask ", on);
      for (const ValueId index : {rows.Int(1), some, rows.Int(on == 0 ? -1 : 2)}) {
        rows.Add(
            {.code = Code::kStore, .src = {own, index, rows.Const(dtype, edges.back()), mask}});
        rows.Keep(rows.Add({.code = Code::kLoad,
                            .dtype = dtype,
                            .src = {own, index, mask, rows.Const(dtype, edges[1])}}),
                  what);
      }
      for (int64_t k = 0; k < kElements; ++k)
        rows.Keep(rows.Add({.code = Code::kLoad, .dtype = dtype, .src = {own, rows.Int(k)}}),
                  absl::StrCat(what, ", element ", k));
    }
  }
}

// What threads of a warp give each other.
void AddExchange(Rows& rows) {
  for (const DType dtype : AllTypes())
    for (const int64_t number : EdgesOf(dtype))
      rows.Keep(
          rows.Add({.code = Code::kShuffle,
                    .dtype = dtype,
                    .src = {rows.Const(dtype, number)},
                    .imm = {4}}),
          absl::StrCat("SHUFFLE of ", std::string(Name(dtype)), " ", NumberText(dtype, number)));
}

// ---- how they are run

struct Run {
  Program program;
  Buffers start, want;
};

void Interpreted(Rows& rows, Run& run) {
  run.program = rows.Take();
  ASSERT_EQ(program::CheckProgram(run.program, "none", program::Phase::kFinal), absl::OkStatus());
  run.start = run.want = rows.Start();
  const program::RunReport report = program::Interpret(run.program, run.want, {});
  ASSERT_TRUE(report.ok()) << report.message;
}

void ExpectOnTheMachine(Rows& rows) {
  Run run;
  Interpreted(rows, run);
  if (testing::Test::HasFatalFailure()) return;
  std::string ran_before;
  for (const char* const arch : kEachArch) {
    const auto compiled = Rendered(run.program, arch);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ExpectClean(compiled->object);
    if (std::exchange(ran_before, BodyOf(*compiled)) == BodyOf(*compiled)) continue;
    Buffers got = run.start;
    const absl::Status ran = RunOnPtxMachine(*compiled, got);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(rows.Difference(got, run.want), "") << arch;
  }
}

// Of the host, by LLVM with its passes and without.
void ExpectOnTheHost(Rows& rows) {
  Run run;
  Interpreted(rows, run);
  if (testing::Test::HasFatalFailure()) return;
  const auto renderer = render::MakeX86Renderer(HostTarget());
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  for (const bool no_opt : {true, false}) {
    CompiledKernel kernel{.symbol = "k",
                          .tasks = run.program.Extent(Grid::kBlock),
                          .buffer_count = run.program.buffer_count};
    auto object = (*renderer)->Render(run.program, "k", no_opt, nullptr);
    ASSERT_TRUE(object.ok()) << object.status();
    kernel.object = *std::move(object);
    const auto loaded = LoadedKernel::Load(std::move(kernel));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    Buffers got = run.start;
    (*loaded)->RunGuarded(got);
    EXPECT_EQ(rows.Difference(got, run.want), "") << (no_opt ? "without passes" : "with passes");
  }
}

// The builder folds constants to what the interpreter computes of them.
void ExpectFolded(Rows& rows, Rows& folded) {
  Run run, other;
  Interpreted(rows, run);
  Interpreted(folded, other);
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(folded.Difference(other.want, run.want), "");
}

void ExpectAssembled(Rows& rows, const std::string& ptxas) {
  const char* const arch = kEachArch[0];
  const auto compiled = Rendered(rows.Take(), arch);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto assembled = AssembleKernel(ptxas, compiled->object, arch);
  ASSERT_TRUE(assembled.ok()) << assembled.status() << compiled->object;
  EXPECT_EQ(assembled->warnings + assembled->stack_bytes, 0);
}

using Fill = void (*)(Rows& rows, DType dtype);
struct Kind {
  const char* name;
  Fill fill;
};
constexpr Kind kKinds[] = {
    {"operations",
     [](Rows& rows, DType dtype) {
       for (const Op op : OperationsOf(dtype)) AddOperation(rows, op, dtype);
     }},
    {"conversions", AddConversions},
    {"vectors", AddVectors},
    {"masks", AddMasks},
};

// A program has so many registers, and LLVM's time grows faster than it. On the host one part runs:
// a prime above the number of constants, so that all of them are met.
constexpr int64_t kPartsOnTheMachine = 8, kPartsOnTheHost = 37;

class ConstantOperands : public testing::TestWithParam<DType> {
 protected:
  // Calls `expect` with all that the kind has, in parts.
  void ForEachKind(const std::function<void(const Kind& kind, Rows::Part part)>& expect,
                   int64_t parts) {
    for (const Kind& kind : kKinds)
      for (int64_t part = 0; part < parts; ++part) {
        SCOPED_TRACE(absl::StrCat(kind.name, ", part ", part));
        expect(kind, {part, parts});
        if (HasFailure()) return;
      }
  }
};

TEST_P(ConstantOperands, OnThePtxMachine_AreAsInterpreted) {
  ForEachKind(
      [](const Kind& kind, Rows::Part part) {
        Rows rows(part);
        kind.fill(rows, GetParam());
        ExpectOnTheMachine(rows);
      },
      kPartsOnTheMachine);
}

// One part of each kind, another one of each type.
TEST_P(ConstantOperands, OnTheHost_AreAsInterpreted) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Rows rows({static_cast<int64_t>(GetParam()), kPartsOnTheHost}, Grid::kBlock);
    kind.fill(rows, GetParam());
    ExpectOnTheHost(rows);
  }
}

TEST_P(ConstantOperands, FoldedByTheBuilder_AreAsInterpreted) {
  ForEachKind(
      [](const Kind& kind, Rows::Part part) {
        Rows rows(part), folded(part, Grid::kThread, /*folds=*/true);
        kind.fill(rows, GetParam());
        kind.fill(folded, GetParam());
        ExpectFolded(rows, folded);
      },
      1);
}

// What the assembler takes depends on what is a constant, not on all of its values.
TEST_P(ConstantOperands, AreAssembled) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Rows rows({static_cast<int64_t>(GetParam()), kPartsOnTheHost});
    kind.fill(rows, GetParam());
    ExpectAssembled(rows, ptxas);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConstantOperands, testing::ValuesIn(AllTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(Constants, ThatDecideBranchesLoopsAndMasks_AreAsInterpreted) {
  Rows rows({});
  AddControl(rows);
  ExpectOnTheMachine(rows);
  Rows host({}, Grid::kBlock);
  AddControl(host);
  ExpectOnTheHost(host);
}

TEST(Constants, ThatThreadsGiveEachOther_AreAsInterpreted) {
  Rows rows({});
  AddExchange(rows);
  ExpectOnTheMachine(rows);
}

}  // namespace
}  // namespace outboard::test
