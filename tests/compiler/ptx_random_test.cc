// Random programs for what the printer of PTX does with addresses: indices that are sums of many
// terms around the limits of 2^23 bytes, 2^31 and 2^32, places in swizzled memory, and accesses
// that become one. On the PTX machine, against the interpreter of programs.
// OUTBOARD_KERNELS=n: so many programs of each kind; OUTBOARD_SEED=n: program n alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "compiler/program/spec.h"
#include "tests/compiler/kernel_run.h"
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

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  bool OneOf(int64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> list) {
    return *(list.begin() + Below(static_cast<int64_t>(list.size())));
  }

 private:
  std::mt19937_64 engine_;
};

// Calls `check` with each number of a program, and stops at the first that fails.
void ForSeeds(int count, const std::function<void(uint32_t seed)>& check) {
  const char *const one = std::getenv("OUTBOARD_SEED"), *const all =
                                                            std::getenv("OUTBOARD_KERNELS");
  const int first = one != nullptr ? std::atoi(one) : 0;
  const int end = one != nullptr ? first + 1 : all != nullptr ? std::atoi(all) : count;
  for (int seed = first; seed < end; ++seed) {
    SCOPED_TRACE(absl::StrCat("repeat with OUTBOARD_SEED=", seed));
    check(static_cast<uint32_t>(seed));
    if (testing::Test::HasFailure()) return;
  }
}

// Neither variable is set: then so and so many programs are of each kind.
bool RunsAllSeeds() {
  return std::getenv("OUTBOARD_SEED") == nullptr && std::getenv("OUTBOARD_KERNELS") == nullptr;
}

// Each element its own number, as far as the type can tell.
std::string Numbered(DType dtype, int64_t count) {
  const int width = ByteWidth(dtype);
  std::string bytes(static_cast<size_t>(count * width), '\0');
  for (int64_t i = 0; i < count; ++i) {
    char* const at = bytes.data() + i * width;
    if (IsFloat(dtype)) {
      StoreFloat(dtype, RoundTo(dtype, static_cast<double>(i % 251)), at);
    } else {
      StoreInt(dtype, WrapTo(dtype, i + i / 251), at);
    }
  }
  return bytes;
}

void ExpectSame(const Program& program, const Buffers& start, const std::vector<int64_t>& vars,
                const char* arch, bool assembled = false) {
  ASSERT_EQ(program::CheckProgram(program, "none", program::Phase::kFinal), absl::OkStatus());
  ExpectRunsAsInterpreted(program, start, vars, {arch}, assembled);
}

// ---- indices

constexpr int64_t kThreads = 32;
constexpr int64_t kInstructionRoom = int64_t{1} << 23;  // bytes that an instruction adds

// A sum of terms: what its numbers are at run time, and what the printer knows of them.
struct RandomSum {
  struct Var {
    int64_t min, max, value;
  };
  struct Term {
    enum Kind { kThread, kBlock, kOuter, kInner, kVar, kConst } kind;
    int64_t factor;                                            // of a constant the number
    int64_t divides = 0, remainder = 0, at_least = INT64_MIN;  // unless they are 0
    size_t var = 0;
    bool first = false;  // the left operand of the addition
  };
  std::vector<Var> vars;
  std::vector<Term> terms;
};

int64_t Far(Random& random) {
  const int64_t limit = random.Of<int64_t>(
      {kInstructionRoom, kInstructionRoom / 2, kInstructionRoom / 4, kInstructionRoom / 8, 1 << 24,
       int64_t{1} << 31, int64_t{1} << 32, 100, int64_t{1} << 30, int64_t{3} << 40});
  const int64_t number = limit + random.Below(9) - 4;
  return random.OneOf(2) ? number : -number;
}

RandomSum MakeSum(Random& random) {
  RandomSum sum;
  for (int v = 0; v < 2; ++v) {
    const int64_t value = Far(random);
    const int64_t spread = random.Of<int64_t>({0, 5, 1000, int64_t{1} << 31, int64_t{1} << 45});
    sum.vars.push_back({value - random.Below(spread + 1), value + random.Below(spread + 1), value});
  }
  const int64_t count = 2 + random.Below(7);
  for (int64_t t = 0; t < count; ++t) {
    using Term = RandomSum::Term;
    Term term{random.Of({Term::kThread, Term::kThread, Term::kBlock, Term::kOuter, Term::kInner,
                         Term::kVar, Term::kConst, Term::kConst}),
              random.Of<int64_t>({1, 1, 2, 4, 8, 16, 32, 3, 12, 100, -1, -4, -16, 1000, 65536})};
    if (term.kind == Term::kConst) term.factor = Far(random);
    if (term.kind == Term::kVar) {
      term.factor = random.Of<int64_t>({1, 1, 2, -1, -3, 5});
      term.var = static_cast<size_t>(random.Below(2));
    } else if (term.kind != Term::kConst) {
      if (random.OneOf(5)) term.divides = random.Of<int64_t>({2, 3, 8});
      if (random.OneOf(5)) term.remainder = random.Of<int64_t>({2, 5, 16});
      if (random.OneOf(6)) term.at_least = random.Below(4) - 2;
    }
    term.first = random.OneOf(3);
    sum.terms.push_back(term);
  }
  return sum;
}

// What a program's sums are made of; `inner` is -1 outside of that loop.
struct Atoms {
  ValueId thread, block, outer, inner;
  std::vector<ValueId> vars;
};

ValueId Printed(ProgramBuilder& b, const RandomSum& sum, const Atoms& atoms) {
  ValueId all = -1;
  for (const RandomSum::Term& term : sum.terms) {
    using Term = RandomSum::Term;
    ValueId value = -1;
    switch (term.kind) {
      case Term::kThread: value = atoms.thread; break;
      case Term::kBlock: value = atoms.block; break;
      case Term::kOuter: value = atoms.outer; break;
      case Term::kInner: value = atoms.inner >= 0 ? atoms.inner : atoms.outer; break;
      case Term::kVar: value = atoms.vars[term.var]; break;
      case Term::kConst: value = b.Int(term.factor); break;
    }
    if (term.divides > 0) value = b.Divide(value, term.divides);
    if (term.remainder > 0) value = b.Modulo(value, term.remainder);
    if (term.at_least != INT64_MIN)
      value = b.Alu(Op::kMax, DType::kI64, {value, b.Int(term.at_least)});
    if (term.kind != Term::kConst) value = b.Times(value, term.factor);
    if (all < 0) {
      all = value;
    } else {
      all = term.first ? b.Plus(value, all) : b.Plus(all, value);
    }
  }
  return all;
}

struct IndexProgram {
  int64_t blocks = 1, outer = 1, inner = 1;
  bool in_inner = false;
  DType dtype = DType::kF32;
  int lanes = 1;
  int64_t elements = 0;
  bool shared = false;             // the elements are read from memory of the block
  RandomSum::Var correction = {};  // added, so that the least index is 0
  bool corrected_by_var = false;
};

// Slots: 0 the elements that were read, 1 the sums themselves, 2 the elements.
Program MakeIndexProgram(const RandomSum& sum, const IndexProgram& p) {
  ProgramBuilder b;
  const int64_t points = p.blocks * kThreads * p.outer * (p.in_inner ? p.inner : 1);
  const ValueId out = b.Buffer(p.dtype, 0, points * p.lanes),
                sums = b.Buffer(DType::kI64, 1, points), in = b.Buffer(p.dtype, 2, p.elements);
  Atoms atoms{b.Special(Grid::kThread, kThreads), b.Special(Grid::kBlock, p.blocks), -1, -1, {}};
  int64_t slot = 0;
  const auto var = [&](const RandomSum::Var& v) {
    return b.Add({.code = Code::kVar, .dtype = DType::kI64, .imm = {slot++, v.min, v.max}});
  };
  for (const RandomSum::Var& v : sum.vars) atoms.vars.push_back(var(v));
  const ValueId correction = p.corrected_by_var ? var(p.correction) : b.Int(p.correction.value);
  ValueId memory = in;
  if (p.shared) {
    memory = b.Alloc(Space::kShared, p.dtype, p.elements);
    const ValueId pass = b.Loop((p.elements + kThreads - 1) / kThreads);
    const ValueId element = b.Plus(b.Times(pass, kThreads), atoms.thread);
    const ValueId inside = b.If(b.Less(element, b.Int(p.elements)));
    b.Store(memory, element, b.Load(in, element));
    b.EndIf(inside);
    b.End(pass);
    b.Barrier();
  }
  atoms.outer = b.Loop(p.outer);
  if (p.in_inner) atoms.inner = b.Loop(p.inner);
  const ValueId index = b.Plus(Printed(b, sum, atoms), correction);
  ValueId point =
      b.Plus(b.Times(b.Plus(b.Times(atoms.block, p.outer), atoms.outer), kThreads), atoms.thread);
  if (p.in_inner) point = b.Plus(b.Times(point, p.inner), atoms.inner);
  b.Store(sums, point, index);
  const ValueId value =
      b.Add({.code = Code::kLoad, .dtype = p.dtype, .lanes = p.lanes, .src = {memory, index}});
  b.Add({.code = Code::kStore, .lanes = p.lanes, .src = {out, b.Times(point, p.lanes), value}});
  // The next ones: what is near shares what is before.
  if (p.in_inner) b.End(atoms.inner);
  b.End(atoms.outer);
  return b.Take(3);
}

// The least and the greatest sum, by the interpreter, of a program that reads nothing.
std::pair<int64_t, int64_t> RangeOf(const RandomSum& sum, IndexProgram p,
                                    const std::vector<int64_t>& vars) {
  p.elements = 1;
  p.lanes = 1;
  p.shared = false;
  Program program = MakeIndexProgram(sum, p);
  // Without the load: the store of what it reads goes, too.
  ProgramBuilder b;
  std::vector<ValueId> made(program.code.size(), -1);
  for (size_t n = 0; n < program.code.size(); ++n) {
    Instruction i = program.code[n];
    if (i.code == Code::kLoad) continue;
    if (i.code == Code::kStore && program.code[static_cast<size_t>(i.src[0])].imm[0] == 0) continue;
    for (ValueId& s : i.src) s = made[static_cast<size_t>(s)];
    made[n] = b.Add(std::move(i));
  }
  program = b.Take(3);
  const int64_t points = p.blocks * kThreads * p.outer * (p.in_inner ? p.inner : 1);
  Buffers buffers = {std::string(static_cast<size_t>(points * ByteWidth(p.dtype)), '\0'),
                     std::string(static_cast<size_t>(points) * 8, '\0'),
                     std::string(static_cast<size_t>(ByteWidth(p.dtype)), '\0')};
  const program::RunReport report = program::Interpret(program, buffers, vars);
  OB_CHECK(report.ok());
  std::vector<int64_t> values(static_cast<size_t>(points));
  std::memcpy(values.data(), buffers[1].data(), buffers[1].size());
  const auto [least, most] = std::ranges::minmax(values);
  return {least, most};
}

TEST(PtxRandom, Indices_AreAsInterpreted) {
  int checked = 0, far = 0, shared = 0;
  ForSeeds(400, [&](uint32_t seed) {
    Random random(seed);
    const RandomSum sum = MakeSum(random);
    IndexProgram p;
    p.blocks = random.Of<int64_t>({1, 1, 3});
    p.outer = random.Of<int64_t>({1, 2, 5});
    p.inner = random.Of<int64_t>({1, 3});
    p.in_inner = random.OneOf(2);
    p.dtype = random.Of({DType::kF32, DType::kI8, DType::kBF16, DType::kI64, DType::kU16});
    p.lanes = random.Of({1, 1, 2, 4});
    p.shared = random.OneOf(3);
    std::vector<int64_t> vars;
    for (const RandomSum::Var& v : sum.vars) vars.push_back(v.value);
    vars.push_back(0);
    const auto [least, most] = RangeOf(sum, p, vars);
    const auto span = static_cast<uint64_t>(most) - static_cast<uint64_t>(least);
    if (span >= (p.shared ? 4000 : 2'000'000)) return;
    p.elements = static_cast<int64_t>(span) + p.lanes;
    p.corrected_by_var = random.OneOf(2);
    const auto value = static_cast<int64_t>(-static_cast<uint64_t>(least));
    const int64_t spread = random.Of<int64_t>({0, 7, int64_t{1} << 20});
    p.correction = {value, value, value};
    if (value > INT64_MIN / 2 && value < INT64_MAX / 2)
      p.correction = {value - random.Below(spread + 1), value + random.Below(spread + 1), value};
    vars.back() = value;
    const Program program = MakeIndexProgram(sum, p);
    const int64_t points = p.blocks * kThreads * p.outer * (p.in_inner ? p.inner : 1);
    const bool is_far = value >= kInstructionRoom || value < -kInstructionRoom;
    ExpectSame(program,
               {std::string(static_cast<size_t>(points * p.lanes * ByteWidth(p.dtype)), '\0'),
                std::string(static_cast<size_t>(points) * 8, '\0'), Numbered(p.dtype, p.elements)},
               vars, kArchs[seed % 4], /*assembled=*/p.shared && is_far);
    ++checked;
    shared += p.shared;
    far += is_far;
  });
  std::printf("%d programs, %d of them with a far part, %d of memory of the block\n", checked, far,
              shared);
  if (!RunsAllSeeds()) return;
  EXPECT_GT(checked, 250);
  EXPECT_GT(far, 100);
  EXPECT_GT(shared, 50);
}

// ---- places in swizzled memory

TEST(PtxRandom, SwizzledPlaces_AreAsInterpreted) {
  int checked = 0;
  ForSeeds(300, [&](uint32_t seed) {
    Random random(seed);
    const DType dtype = random.Of({DType::kBF16, DType::kF32, DType::kU8, DType::kI64});
    const int64_t width = ByteWidth(dtype);
    const int64_t together = 16 / width;  // elements that a swizzle moves together
    // An index for each thread and pass, all of which are different: bits of their numbers, put to
    // places of the index. More threads and passes than bits of one kind.
    const int64_t thread_bits = 5, pass_bits = random.Below(4);
    const int lanes = random.OneOf(2) ? 1 : static_cast<int>(random.Of<int64_t>({1, 2, together}));
    const bool copies = random.OneOf(3);
    const int64_t piece = copies ? together : lanes;
    const int64_t index_bits = thread_bits + pass_bits + random.Below(3);
    std::vector<int64_t> places(static_cast<size_t>(index_bits));
    for (size_t k = 0; k < places.size(); ++k) places[k] = piece << k;
    for (size_t k = places.size() - 1; k > 0; --k)
      std::swap(places[k], places[static_cast<size_t>(random.Below(static_cast<int64_t>(k) + 1))]);
    int64_t elements = piece << index_bits;
    const int64_t pattern = program::kSwizzleAlign / width;
    const int64_t shift = random.Of<int64_t>({0, piece, 8 * piece, pattern, 3 * pattern / 2});
    elements = (elements + shift + pattern - 1) / pattern * pattern;
    if (elements * width > (48 << 10)) return;
    const bool hopper = random.OneOf(2);  // memory of the block in one piece
    ProgramBuilder b;
    const ValueId out = b.Buffer(dtype, 0, elements), in = b.Buffer(dtype, 1, elements);
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    if (random.OneOf(2)) {
      const ValueId other = b.Alloc(Space::kShared, DType::kU8, kThreads);
      b.Store(other, thread, b.Add({.code = Code::kConst, .dtype = DType::kU8}));
    }
    const ValueId memory = b.Alloc(Space::kShared, dtype, elements);
    const auto each = [&](const auto& body) {
      const ValueId pass = b.Loop((elements + kThreads - 1) / kThreads);
      const ValueId element = b.Plus(b.Times(pass, kThreads), thread);
      const ValueId inside = b.If(b.Less(element, b.Int(elements)));
      body(element);
      b.EndIf(inside);
      b.End(pass);
      b.Barrier();
    };
    each([&](ValueId element) {
      b.Store(memory, element, b.Add({.code = Code::kConst, .dtype = dtype}));
    });
    if (hopper) b.Do(Code::kWarpSync);
    const ValueId pass = b.Loop(int64_t{1} << pass_bits);
    std::vector<ValueId> terms;
    size_t place = 0;
    const auto add_bits = [&](ValueId number, int64_t bits) {
      for (int64_t k = 0; k < bits;) {
        // Neighbouring bits together, where their places are neighbours, too.
        int64_t run = 1;
        while (k + run < bits && places[place + 1] == 2 * places[place]) {
          ++run;
          ++place;
        }
        const int64_t factor = places[place] >> (run - 1);
        terms.push_back(
            b.Times(b.Modulo(b.Divide(number, int64_t{1} << k), int64_t{1} << run), factor));
        k += run;
        ++place;
      }
    };
    add_bits(thread, thread_bits);
    add_bits(pass, pass_bits);
    if (shift > 0) terms.push_back(b.Int(shift));
    ValueId index = -1;
    while (!terms.empty()) {
      const auto which = static_cast<size_t>(random.Below(static_cast<int64_t>(terms.size())));
      index = index < 0 ? terms[which] : b.Plus(index, terms[which]);
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const ValueId from =
        b.Times(b.Plus(b.Times(pass, kThreads), thread), copies ? together : lanes);
    // What is stored to its place must be in the buffer.
    if (((kThreads << pass_bits) * piece) > elements) return;
    if (copies) {
      b.Add({.code = Code::kCopy, .src = {memory, index, in, from}, .imm = {together, 1, 1}});
      b.Add({.code = Code::kCommit});
      b.Add({.code = Code::kWait});
    } else {
      const ValueId value =
          b.Add({.code = Code::kLoad, .dtype = dtype, .lanes = lanes, .src = {in, from}});
      b.Add({.code = Code::kStore, .lanes = lanes, .src = {memory, index, value}, .imm = {1}});
    }
    b.End(pass);
    b.Barrier();
    each([&](ValueId element) { b.Store(out, element, b.Load(memory, element)); });
    const Program program = b.Take(2);
    if (copies && shift % together != 0) return;
    ExpectSame(
        program,
        {std::string(static_cast<size_t>(elements * width), '\0'), Numbered(dtype, elements)}, {},
        hopper ? "sm_90a" : kArchs[seed % 4]);
    ++checked;
  });
  std::printf("%d programs\n", checked);
  if (RunsAllSeeds()) EXPECT_GT(checked, 150);
}

// ---- accesses that become one

// Each thread reads and writes elements of its own, by constants behind one index and behind
// another that is the same at run time or not, under masks, with barriers and branches between.
TEST(PtxRandom, JoinedAccesses_AreAsInterpreted) {
  int joined = 0;
  ForSeeds(600, [&](uint32_t seed) {
    Random random(seed);
    const DType dtype =
        random.Of({DType::kF32, DType::kBF16, DType::kU8, DType::kI16, DType::kF64, DType::kF16});
    constexpr int64_t kOwn = 16;
    const int64_t elements = kThreads * kOwn;
    ProgramBuilder b;
    const ValueId keep = b.Buffer(dtype, 0, elements * 4), global = b.Buffer(dtype, 1, elements),
                  other_name = random.OneOf(2) ? b.Buffer(dtype, 1, elements) : global;
    const ValueId thread = b.Special(Grid::kThread, kThreads);
    const ValueId shift = b.Add({.code = Code::kVar, .dtype = DType::kI64, .imm = {0, 0, 4}});
    const ValueId odd = b.Alu(Op::kCmpNe, DType::kBool, {b.Modulo(thread, 2), b.Int(0)});
    ValueId memory = global;
    const bool shared = random.OneOf(3);
    if (shared) {
      memory = b.Alloc(Space::kShared, dtype, elements);
      const ValueId pass = b.Loop(kOwn);
      const ValueId element = b.Plus(b.Times(thread, kOwn), pass);
      b.Store(memory, element, b.Load(global, element));
      b.End(pass);
    }
    const ValueId root = b.Times(thread, kOwn), other = b.Plus(root, shift);
    std::vector<ValueId> values = {b.Const(dtype, 3), b.Const(dtype, 5)};
    int64_t next = 0;
    const int64_t count = 6 + random.Below(20);
    ValueId branch = -1;
    int64_t at = random.Below(kOwn);
    std::vector<size_t> open_values;
    for (int64_t k = 0; k < count; ++k) {
      const bool behind_other = random.OneOf(6);
      at = random.OneOf(4)   ? random.Below(12)
           : random.OneOf(3) ? (at + 11) % 12
                             : (at + 1) % 12;
      const ValueId index = b.Plus(behind_other ? other : root, b.Int(at));
      const ValueId where = shared ? memory : random.OneOf(2) ? global : other_name;
      const int64_t masked = random.Below(4);
      if (random.OneOf(2)) {
        Instruction load{.code = Code::kLoad, .dtype = dtype, .src = {where, index}};
        if (masked == 0) load.src.insert(load.src.end(), {odd, values[0]});
        values.push_back(b.Add(load));
      } else {
        Instruction store{
            .code = Code::kStore,
            .src = {
                where, index,
                values[static_cast<size_t>(random.Below(static_cast<int64_t>(values.size())))]}};
        if (masked == 0) store.src.push_back(odd);
        b.Add(store);
      }
      if (branch < 0 && random.OneOf(12)) b.Barrier();
      if (branch < 0 && random.OneOf(8)) {
        branch = b.If(b.Less(thread, b.Int(20)));
        open_values.push_back(values.size());
      } else if (branch >= 0 && random.OneOf(3)) {
        b.EndIf(branch);
        branch = -1;
        values.resize(open_values.back());
      }
    }
    if (branch >= 0) {
      b.EndIf(branch);
      values.resize(open_values.back());
    }
    const ValueId mine = b.Times(thread, 4 * kOwn);
    for (const ValueId value : values) b.Store(keep, b.Plus(mine, b.Int(next++)), value);
    if (shared) {
      b.Barrier();
      const ValueId pass = b.Loop(kOwn);
      const ValueId element = b.Plus(b.Times(thread, kOwn), pass);
      b.Store(global, element, b.Load(memory, element));
      b.End(pass);
    }
    const Program program = b.Take(2);
    for (const int64_t by : {0, 1, 4}) {
      ExpectSame(program,
                 {std::string(static_cast<size_t>(4 * elements * ByteWidth(dtype)), '\0'),
                  Numbered(dtype, elements)},
                 {by}, kArchs[seed % 4]);
      if (HasFailure()) return;
    }
    const std::string text = Rendered(program)->object;
    joined += absl::StrContains(text, ".v2.") || absl::StrContains(text, ".v4.");
  });
  std::printf("%d programs with joined accesses\n", joined);
  if (RunsAllSeeds()) EXPECT_GT(joined, 300);
}

}  // namespace
}  // namespace outboard::test
