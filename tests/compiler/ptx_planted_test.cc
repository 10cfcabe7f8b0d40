// Mistakes planted in printed PTX, of the kinds that the printer of PTX could make by itself:
// accesses that became one with their registers or addresses exchanged, places in swizzled memory
// with other bits, far parts of addresses with another sign or length. Each of them must be found:
// by a report of the PTX machine, or because the results differ from those of the interpreter or of
// a walk of the kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::Program;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

// A line of PTX in another form.
struct Mistake {
  const char* kind;
  size_t line;
  std::string text;
};

// An instruction in parts: "@%p1 ", "ld.global.v2.b32", "{%r1, %r2}, [%rd1+8]".
struct Parts {
  std::string guard, name, operands;
};
Parts PartsOf(absl::string_view line) {
  Parts parts;
  line = absl::StripSuffix(absl::StripPrefix(line, "\t"), ";");
  if (absl::ConsumePrefix(&line, "@")) {
    const size_t end = line.find(' ');
    parts.guard = absl::StrCat("@", line.substr(0, end), " ");
    line.remove_prefix(end + 1);
  }
  const size_t end = std::min(line.find(' '), line.size());
  parts.name = std::string(line.substr(0, end));
  parts.operands = end < line.size() ? std::string(line.substr(end + 1)) : "";
  return parts;
}
std::string LineOf(const Parts& parts) {
  return absl::StrCat("\t", parts.guard, parts.name, " ", parts.operands, ";");
}

// The operands with `bytes` more in the `nth` address.
std::string Moved(const std::string& operands, int64_t bytes) {
  const size_t begin = operands.find('['), end = operands.find(']');
  OB_CHECK(begin != std::string::npos && end != std::string::npos);
  const std::string inside = operands.substr(begin + 1, end - begin - 1);
  const size_t plus = inside.find('+');
  int64_t offset = 0;
  if (plus != std::string::npos) OB_CHECK(absl::SimpleAtoi(inside.substr(plus + 1), &offset));
  return absl::StrCat(operands.substr(0, begin + 1), inside.substr(0, plus), "+", offset + bytes,
                      operands.substr(end));
}

using Lines = std::vector<std::string>;
using Plant = std::function<void(const Lines& lines, size_t n, std::vector<Mistake>& all)>;

bool IsAccess(const Parts& parts) {
  return (parts.name.starts_with("ld.global") || parts.name.starts_with("st.global") ||
          parts.name.starts_with("ld.shared") || parts.name.starts_with("st.shared")) &&
         absl::StrContains(parts.operands, '[');
}

// Of an access to several elements: two of its registers exchanged, two bytes off, an element off,
// and without its guard.
void OfJoined(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  const Parts parts = PartsOf(lines[n]);
  if (!IsAccess(parts) || !absl::StrContains(parts.operands, '{')) return;
  const auto add = [&](const char* kind, const std::string& guard, const std::string& operands) {
    all.push_back({kind, n, LineOf({guard, parts.name, operands})});
  };
  for (const int64_t bytes : {2, -2, 4, -4})
    add("joined access, moved", parts.guard, Moved(parts.operands, bytes));
  for (const int64_t bytes : {16, -16})
    add("joined access, far off", parts.guard, Moved(parts.operands, bytes));
  const size_t begin = parts.operands.find('{'), end = parts.operands.find('}');
  const Lines registers = absl::StrSplit(parts.operands.substr(begin + 1, end - begin - 1), ", ");
  for (size_t k = 0; k + 1 < registers.size(); ++k) {
    Lines exchanged = registers;
    std::swap(exchanged[k], exchanged[k + 1]);
    add("joined access, exchanged", parts.guard,
        absl::StrCat(parts.operands.substr(0, begin + 1), absl::StrJoin(exchanged, ", "),
                     parts.operands.substr(end)));
  }
  if (!parts.guard.empty()) add("joined access, unguarded", "", parts.operands);
}

// Joined in a word: the halves exchanged, the other half taken.
void OfPackedWords(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  const Parts parts = PartsOf(lines[n]);
  const auto add = [&](const std::string& name, std::string operands) {
    all.push_back({"packed word", n, LineOf({parts.guard, name, std::move(operands)})});
  };
  if (parts.name == "prmt.b32") {
    Lines list = absl::StrSplit(parts.operands, ", ");
    std::swap(list[1], list[2]);
    add(parts.name, absl::StrJoin(list, ", "));
  } else if (parts.name == "cvt.rn.f16x2.f32" || parts.name == "cvt.rn.bf16x2.f32") {
    Lines list = absl::StrSplit(parts.operands, ", ");
    if (absl::StartsWith(list[2], "0f")) return;  // a number that is rounded alone
    std::swap(list[1], list[2]);
    add(parts.name, absl::StrJoin(list, ", "));
  } else if (parts.name == "bfe.s32" || parts.name == "bfe.u32") {
    Lines list = absl::StrSplit(parts.operands, ", ");
    int64_t first = 0;
    OB_CHECK(absl::SimpleAtoi(list[2], &first));
    list[2] = absl::StrCat(first ^ 8);
    add(parts.name, absl::StrJoin(list, ", "));
  }
}

// The swizzle: other bits are mixed, none are, bits are mixed into others.
void OfSwizzles(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  const Parts parts = PartsOf(lines[n]);
  Lines list = absl::StrSplit(parts.operands, ", ");
  const auto add = [&](const char* kind, const std::string& name) {
    all.push_back({kind, n, LineOf({parts.guard, name, absl::StrJoin(list, ", ")})});
  };
  int64_t number = 0;
  if (parts.name == "xor.b32") {
    if (absl::SimpleAtoi(list[2], &number)) {
      for (const int64_t bits : {16, 32, 64, 128}) {
        list[2] = absl::StrCat(number ^ bits);
        add("XOR with other bits", parts.name);
      }
      return;
    }
    // The swizzle itself mixes bits into places that may have none of them: a sum is as right.
    const Parts before = PartsOf(n > 0 ? absl::string_view(lines[n - 1]) : "");
    if (before.name != "and.b32" || !absl::StartsWith(before.operands, list[2] + ", ")) {
      add("sum instead of XOR", "add.s32");
      add("OR instead of XOR", "or.b32");
    }
    list.pop_back();
    add("no XOR", "mov.b32");
  } else if (parts.name == "and.b32" && list[2] == "112") {
    for (const int64_t bits : {48, 96, 80}) {
      list[2] = absl::StrCat(bits);
      add("other bits of a row", parts.name);
    }
    if (n == 0) return;
    const Parts before = PartsOf(lines[n - 1]);
    Lines shift = absl::StrSplit(before.operands, ", ");
    if (before.name != "shr.u32" || shift[2] != "3") return;
    for (const char* const by : {"2", "4"}) {
      shift[2] = by;
      all.push_back({"bits of another place", n - 1,
                     LineOf({before.guard, before.name, absl::StrJoin(shift, ", ")})});
    }
  }
}

// Of every access, asynchronous copies and matrices included: its address one piece further.
void OfAddresses(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  const Parts parts = PartsOf(lines[n]);
  const bool is_matrix = parts.name.starts_with("ldmatrix") || parts.name.starts_with("cp.async.c");
  if ((!IsAccess(parts) && !is_matrix) || !absl::StrContains(parts.operands, '[')) return;
  for (const int64_t bytes : {16, -16, 128, -1024})
    all.push_back(
        {"address of a piece", n, LineOf({parts.guard, parts.name, Moved(parts.operands, bytes)})});
}

// Of memory of the block alone: of a product of f32 the accesses to buffers are those of what is
// computed again, which finite numbers are not.
void OfSharedAddresses(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  if (!absl::StrContains(lines[n], ".global")) OfAddresses(lines, n, all);
}

// What is beyond the room of an instruction, and the sign of an index.
void OfFarParts(const Lines& lines, size_t n, std::vector<Mistake>& all) {
  constexpr int64_t kRoom = int64_t{1} << 23;
  const Parts parts = PartsOf(lines[n]);
  Lines list = absl::StrSplit(parts.operands, ", ");
  const auto add = [&](const char* kind, const std::string& name) {
    all.push_back({kind, n, LineOf({parts.guard, name, absl::StrJoin(list, ", ")})});
  };
  int64_t far = 0;
  if (parts.name == "add.s64" && absl::SimpleAtoi(list[2], &far) && far % kRoom == 0) {
    for (const int64_t other : {int64_t{0}, -far, far + kRoom, far - kRoom, far + kRoom / 2,
                                int64_t{static_cast<int32_t>(far * 3)}}) {
      list[2] = absl::StrCat(other);
      if (other != far) add("another far part", parts.name);
    }
  } else if (parts.name == "mul.wide.s32" || parts.name == "mul.wide.u32") {
    int64_t width = 0;
    OB_CHECK(absl::SimpleAtoi(list[2], &width));
    list[2] = absl::StrCat(2 * width);
    add("another length", parts.name);
    list[2] = absl::StrCat(width);
    if (parts.name == "mul.wide.s32") add("no sign", "mul.wide.u32");
  } else if (IsAccess(parts)) {
    for (const int64_t bytes : {kRoom, -kRoom, 2 * kRoom, int64_t{1} << 32})
      all.push_back({"offset beyond its room", n,
                     LineOf({parts.guard, parts.name, Moved(parts.operands, bytes)})});
  }
}

// A kernel, what it starts from, and whether what it left is right.
struct Subject {
  std::string name;
  CompiledKernel kernel;
  Buffers start;
  std::vector<int64_t> vars;
  std::function<bool(const Buffers& got)> is_right;
};

std::string WhatWasFound(const Subject& subject, const CompiledKernel& kernel) {
  Buffers got = subject.start;
  const absl::Status ran = RunOnPtxMachine(kernel, got, subject.vars);
  EXPECT_FALSE(absl::IsInvalidArgument(ran)) << "no text of PTX: " << ran;
  if (!ran.ok()) return "reported";
  return subject.is_right(got) ? "" : "differs";
}

// What a test has planted and found, for the figures (tests/bench/gpu_test_figures.cc).
class PtxPlanted : public testing::Test {
 protected:
  // Plants each mistake alone; of each family at most twice `of_a_kind`, in even distances.
  void ExpectAllAreFound(const Subject& subject, const std::vector<Plant>& plants,
                         size_t of_a_kind = 60);
  void TearDown() override {
    RecordProperty("faults_planted", static_cast<int>(planted_));
    RecordProperty("faults_found", static_cast<int>(found_));
  }

 private:
  size_t planted_ = 0, found_ = 0;
};

void PtxPlanted::ExpectAllAreFound(const Subject& subject, const std::vector<Plant>& plants,
                                   size_t of_a_kind) {
  SCOPED_TRACE(subject.name);
  ASSERT_EQ(WhatWasFound(subject, subject.kernel), "") << subject.kernel.object;
  const Lines lines = absl::StrSplit(subject.kernel.object, '\n');
  size_t planted = 0, reported = 0;
  std::set<std::string> kinds;
  for (const Plant& plant : plants) {
    std::vector<Mistake> all;
    for (size_t n = 0; n < lines.size(); ++n) plant(lines, n, all);
    ASSERT_FALSE(all.empty()) << "nothing to plant in\n" << subject.kernel.object;
    const size_t step = std::max<size_t>(1, all.size() / of_a_kind);
    for (size_t k = 0; k < all.size(); k += step) {
      const Mistake& mistake = all[k];
      Lines changed = lines;
      changed[mistake.line] = mistake.text;
      CompiledKernel kernel = subject.kernel;
      kernel.object = absl::StrJoin(changed, "\n");
      const std::string found = WhatWasFound(subject, kernel);
      EXPECT_NE(found, "") << mistake.kind << " is not found, line " << mistake.line + 1 << "\n- "
                           << lines[mistake.line] << "\n+ " << mistake.text;
      ++planted;
      found_ += found.empty() ? 0 : 1;
      reported += found == "reported" ? 1 : 0;
      kinds.insert(mistake.kind);
    }
  }
  planted_ += planted;
  std::printf("%s: %zu mistakes of %zu kinds, %zu of them reported by the machine\n",
              subject.name.c_str(), planted, kinds.size(), reported);
}

Subject OfProgram(std::string name, const Program& program, Buffers start,
                  std::vector<int64_t> vars = {}) {
  Buffers want = start;
  const program::RunReport report = program::Interpret(program, want, vars);
  EXPECT_TRUE(report.ok()) << report.message;
  const auto renderer =
      ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90", kMultiprocessors)));
  Subject subject{.name = std::move(name),
                  .kernel = ValueOrDie(renderer->Render(program, "k")),
                  .start = std::move(start),
                  .vars = std::move(vars)};
  subject.is_right = [want = std::move(want)](const Buffers& got) { return got == want; };
  return subject;
}

Subject OfKernel(std::string name, const UOp* sink, const MmaTile& tile, int64_t axis) {
  CompileOptions options{.target = CudaTarget("sm_80", kMultiprocessors)};
  options.opts = {{OptKind::kMma, axis, codegen::MmaAmount(tile)}};
  Subject subject{.name = std::move(name),
                  .kernel = ValueOrDie(CompileKernel(sink, options)),
                  .start = RandomBuffers(sink, 1)};
  Buffers want = subject.start;
  EXPECT_EQ(WalkKernel(sink, want), absl::OkStatus());
  subject.is_right = [want = std::move(want)](const Buffers& got) { return got == want; };
  return subject;
}

// Each thread takes four numbers to another place, one by one.
Program FourByFour(DType dtype, bool masked, bool shared) {
  constexpr int64_t kThreads = 32;
  ProgramBuilder b;
  // Beyond the last element that the mask lets through there is nothing.
  const int64_t elements = masked ? 4 * (kThreads - 3) : 4 * kThreads;
  const ValueId out = b.Buffer(dtype, 0, elements), in = b.Buffer(dtype, 1, elements);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId inside = b.Less(thread, b.Int(kThreads - 3));
  ValueId from = in;
  if (shared) {
    from = b.Alloc(Space::kShared, dtype, 4 * kThreads);
    for (int64_t k = 0; k < 4; ++k) {
      const ValueId at = b.Plus(b.Times(thread, 4), b.Int(k));
      program::Instruction load{.code = Code::kLoad, .dtype = dtype, .src = {in, at}};
      if (masked) load.src.insert(load.src.end(), {inside, b.Const(dtype, 1)});
      b.Store(from, at, b.Add(load));
    }
    b.Barrier();
  }
  const ValueId other = b.Plus(b.Int(4 * (kThreads - (masked ? 4 : 1))), b.Times(thread, -4));
  std::vector<ValueId> values;
  for (int64_t k = 0; k < 4; ++k) {
    program::Instruction load{
        .code = Code::kLoad, .dtype = dtype, .src = {from, b.Plus(other, b.Int(k))}};
    if (masked) load.src.insert(load.src.end(), {inside, b.Const(dtype, 1)});
    values.push_back(b.Add(load));
  }
  for (int64_t k = 0; k < 4; ++k) {
    program::Instruction store{
        .code = Code::kStore,
        .src = {out, b.Plus(b.Times(thread, 4), b.Int(k)), values[static_cast<size_t>(k)]}};
    if (masked) store.src.push_back(inside);
    b.Add(store);
  }
  return b.Take(2);
}

std::string Counted(DType dtype, int64_t elements) {
  const int width = ByteWidth(dtype);
  std::string bytes(static_cast<size_t>(elements * width), '\0');
  for (int64_t i = 0; i < elements; ++i)
    if (IsFloat(dtype)) {
      StoreFloat(dtype, static_cast<double>(i + 3), bytes.data() + i * width);
    } else {
      StoreInt(dtype, i - 7, bytes.data() + i * width);
    }
  return bytes;
}

TEST_F(PtxPlanted, JoinedAccesses) {
  for (const bool masked : {false, true})
    for (const bool shared : {false, true}) {
      const Program program = FourByFour(DType::kF32, masked, shared);
      const int64_t elements = masked ? 4 * 29 : 4 * 32;
      ExpectAllAreFound(
          OfProgram(absl::StrCat("four of f32", masked ? ", masked" : "", shared ? ", shared" : ""),
                    program,
                    {std::string(static_cast<size_t>(4 * elements), '\0'),
                     Counted(DType::kF32, elements)}),
          {OfJoined, OfAddresses});
    }
  // Two to four numbers in words.
  for (const DType dtype : {DType::kI16, DType::kBF16, DType::kF16, DType::kI8}) {
    const int64_t elements = 4 * 32;
    ExpectAllAreFound(
        OfProgram(absl::StrCat("four of ", std::string(Name(dtype))),
                  FourByFour(dtype, false, false),
                  {std::string(static_cast<size_t>(elements * ByteWidth(dtype)), '\0'),
                   Counted(dtype, elements)}),
        dtype == DType::kBF16 ? std::vector<Plant>{OfAddresses}
                              : std::vector<Plant>{OfPackedWords, OfAddresses});
  }
}

TEST_F(PtxPlanted, AddressesOfAProduct) {
  for (const bool turned : {false, true}) {
    Graph g;
    const UOp* const sink =
        KernelOf(g, {.m = 64, .n = 64, .k = 128, .a_turned = turned, .b_turned = true});
    ExpectAllAreFound(OfKernel(absl::StrCat("a product of bf16", turned ? ", A turned" : ""), sink,
                               {64, 64, 64, 2, 2, 2}, 2),
                      {OfAddresses, OfJoined});
  }
}

// By warpgroups: results that threads store to swizzled boxes, and operands that they read from
// such.
TEST_F(PtxPlanted, SwizzledPlaces) {
  const auto renderer =
      ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90a", kMultiprocessors)));
  int subjects = 0;
  for (const HopperCase& test : HopperCases()) {
    if (test.name != "one step" && test.name != "batches of f16" &&
        !absl::StartsWith(test.name, "three products, ring"))
      continue;
    const Program program = ValueOrDie(MakeHopperProduct(test.product, test.tile, test.epilogue));
    Subject subject{.name = test.name,
                    .kernel = ValueOrDie(renderer->Render(program, "k")),
                    .start = InputsOf(test)};
    subject.is_right = [&test](const Buffers& got) { return DifferenceOf(test, got).empty(); };
    ExpectAllAreFound(subject, {OfSwizzles, OfSharedAddresses}, /*of_a_kind=*/40);
    ++subjects;
  }
  EXPECT_EQ(subjects, 3);
}

// What a thread stores and copies to places that one XOR, or an AND before it, decides.
TEST_F(PtxPlanted, SwizzledPlacesOfElements) {
  constexpr int64_t kThreads = 32, kElements = 2048;
  for (const bool copies : {false, true}) {
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kBF16, 0, kElements),
                  in = b.Buffer(DType::kBF16, 1, kElements);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId memory = b.Alloc(Space::kShared, DType::kBF16, kElements);
    const ValueId pass = b.Loop(kElements / kThreads / 8);
    const ValueId from = b.Times(b.Plus(b.Times(pass, kThreads), thread), 8);
    // Rows of 64 elements by eight threads; their pieces of eight by the others.
    const ValueId row = b.Divide(thread, 8), piece = b.Modulo(thread, 8);
    const ValueId to = b.Plus(b.Plus(b.Times(pass, 4 * 64), b.Times(row, 64)), b.Times(piece, 8));
    if (copies) {
      b.Add({.code = Code::kCopy, .src = {memory, to, in, from}, .imm = {8, 1, 1}});
      b.Add({.code = Code::kCommit});
      b.Add({.code = Code::kWait});
    } else {
      b.Add(
          {.code = Code::kStore,
           .lanes = 8,
           .src =
               {memory, to,
                b.Add({.code = Code::kLoad, .dtype = DType::kBF16, .lanes = 8, .src = {in, from}})},
           .imm = {1}});
    }
    b.End(pass);
    b.Barrier();
    const ValueId each = b.Loop(kElements / kThreads);
    const ValueId element = b.Plus(b.Times(each, kThreads), thread);
    b.Store(out, element, b.Load(memory, element));
    b.End(each);
    ExpectAllAreFound(OfProgram(copies ? "swizzled copies" : "swizzled stores", b.Take(2),
                                {std::string(static_cast<size_t>(2 * kElements), '\0'),
                                 Counted(DType::kBF16, kElements)}),
                      {OfSwizzles, OfAddresses});
  }
}

TEST_F(PtxPlanted, FarPartsOfAddresses) {
  // Index + far, where index is so far before: the buffer is small, and what leads there is not.
  for (const int64_t far : {int64_t{3} << 22, -(int64_t{5} << 22), int64_t{1} << 33}) {
    constexpr int64_t kThreads = 32;
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, kThreads), in = b.Buffer(DType::kF32, 1, kThreads);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId before =
        b.Add({.code = Code::kVar, .dtype = DType::kI64, .imm = {0, -far - 5, -far + 5}});
    const ValueId index = b.Plus(b.Plus(b.Times(thread, -1), before), b.Int(far + 31));
    b.Store(out, thread, b.Load(in, index));
    ExpectAllAreFound(
        OfProgram(absl::StrCat("far ", far), b.Take(2),
                  {std::string(4 * kThreads, '\0'), Counted(DType::kF32, kThreads)}, {-far}),
        {OfFarParts});
  }
}

}  // namespace
}  // namespace outboard::test
