// Loop-invariant instructions, out of loops; loads of memory that the loop does not store to, too.
#include <algorithm>

#include "base/check.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/accesses.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/placement.h"

namespace outboard::program {
namespace {

// Where a program stores to memory of its own thread.
class OwnStores {
 public:
  explicit OwnStores(const Program& program)
      : program_(program), stores_(program.code.size()), ends_(EndsOf(program)) {
    for (size_t n = 0; n < program.code.size(); ++n) {
      const Instruction& i = program.code[n];
      if (i.code == Code::kStore) stores_[i.src[0]].push_back(static_cast<ValueId>(n));
      for (const ValueId memory : ChangedMemories(i))
        stores_[memory].push_back(static_cast<ValueId>(n));
    }
  }

  bool IsOwn(ValueId memory) const {
    const Instruction& i = program_.code[memory];
    return i.code == Code::kAlloc && i.imm[0] == static_cast<int64_t>(Space::kPrivate);
  }
  // In the scope that `opener` opens; that of the blocks ends with the program.
  bool InScope(ValueId memory, ValueId opener) const {
    const std::vector<ValueId>& stores = stores_[memory];
    const auto first = std::upper_bound(stores.begin(), stores.end(), opener);
    return first != stores.end() && (ends_[opener] < 0 || *first < ends_[opener]);
  }

 private:
  const Program& program_;
  std::vector<std::vector<ValueId>> stores_;  // by memory
  std::vector<ValueId> ends_;
};

struct Scope {
  ValueId opener = -1;
  // Whether a load may move out of it. A loop may not run at all, and a load that is behind a
  // condition may be in range only where that holds.
  bool loads = true;
  bool repeats = false;  // a loop
  bool rare = false;     // an IF whose condition holds rarely
  bool multiplies = false;       // products of warpgroups stand in it
  bool behind_products = false;  // a loop with such products, in it, has ended
};

// Warpgroups that divide registers have work of their own in branches: what such a branch computes
// is computed there, not before all of them.
bool StaysInBranches(const Program& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& i) { return i.code == Code::kMaxRegisters; });
}

// Whether a warpgroup has 128 sums and adds them over rows, too: sums, and what is computed beside
// them, then take all registers. A thread has seven predicates, so that the assembler packs those
// of conditions that are kept from tile to tile into registers, one by one.
bool IsCrowded(const Program& program) {
  constexpr int64_t kManySums = 128;
  bool many = false, adds_rows = false;
  for (const Instruction& i : program.code) {
    many |= i.code == Code::kWgmma && program.code[i.src[0]].imm[1] >= kManySums;
    adds_rows |= i.code == Code::kShuffle;
  }
  return many && adds_rows && StaysInBranches(program);
}

// What the indices of accesses are made of, without the constants that come last: what accesses to
// elements near each other have in common.
std::vector<bool> PartsOfIndices(const Program& program) {
  std::vector<bool> parts(program.code.size());
  const auto at = [&](ValueId n) -> const Instruction& { return program.code[n]; };
  for (auto n = static_cast<ValueId>(program.code.size()) - 1; n >= 0; --n) {
    const Instruction& i = at(n);
    if (i.code == Code::kLoad || i.code == Code::kStore) {
      const ValueId index = WithoutConstants(program, i.src[1]).first;
      parts[index] = at(index).lanes == 1;
    }
    if (parts[n])
      for (const ValueId source : i.src) parts[source] = at(source).dtype == DType::kI64;
  }
  return parts;
}

}  // namespace

Placement::Placement(const Program& program) : depth(program.code.size(), 0) {
  const std::vector<bool> read_only = ReadOnlySlots(program);
  const OwnStores stores(program);
  const bool stays = StaysInBranches(program), crowded = IsCrowded(program);
  const std::vector<bool> of_indices = stays ? PartsOfIndices(program) : std::vector<bool>(),
                          of_accesses = stays ? BranchesOfAccesses(program) : std::vector<bool>();
  std::vector<Scope> scopes(1);
  for (size_t number = 0; number < program.code.size(); ++number) {
    const auto n = static_cast<ValueId>(number);
    const Instruction& i = program.code[n];
    const int here = static_cast<int>(scopes.size()) - 1;
    const bool blocks = i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(Grid::kBlock);
    if (i.code == Code::kLoop || i.code == Code::kIf || (blocks && here == 0)) {
      depth[n] = static_cast<int>(scopes.size());  // seen inside of it only
      scopes.push_back({n, blocks || (i.code == Code::kLoop && i.imm[0] > 0 && i.src.empty()),
                        i.code == Code::kLoop, i.code == Code::kIf && i.imm[0] != 0});
      if (blocks) first_block = n;
      continue;
    }
    depth[n] = here;
    if (i.code == Code::kWgmma) scopes.back().multiplies = true;
    if (i.code == Code::kEnd || i.code == Code::kEndIf) {
      const Scope ended = scopes.back();
      scopes.pop_back();
      scopes.back().multiplies |= ended.multiplies;
      if (ended.repeats && ended.multiplies)
        for (Scope& around : scopes) around.behind_products = true;
      continue;
    }
    const bool loads = i.code == Code::kLoad;
    const ValueId memory = loads ? i.src[0] : -1;
    const bool own = loads && stores.IsOwn(memory);
    const bool constant = loads && program.code[memory].code == Code::kBuffer &&
                          read_only[program.code[memory].imm[0]];
    if (!IsPure(i.code) && !own && !constant) continue;
    int least = 0;
    for (const ValueId s : i.src) least = std::max(least, depth[s]);
    const auto may_leave = [&](const Scope& scope) {
      if (crowded && IsBool(i.dtype) && scope.repeats && scope.behind_products) return false;
      return !loads || (scope.loads && !(own && stores.InScope(memory, scope.opener)));
    };
    while (depth[n] > least && may_leave(scopes[depth[n]])) --depth[n];
    // Out of the same loops, and of no branch for which there is no need.
    const auto stays_in = [&](const Scope& scope) {
      if (scope.rare) return true;
      return stays && !scope.repeats && !(of_indices[n] && of_accesses[scope.opener]);
    };
    while (depth[n] < here && stays_in(scopes[depth[n] + 1])) ++depth[n];
  }
}

// Scopes become lists, so that an instruction may be appended to an outer one, before the scope
// that is being read.
Program Hoist(const Program& program) {
  const Placement placement(program);
  std::vector<std::vector<ValueId>> open(1);
  const auto close = [&] {
    const std::vector<ValueId> closed = std::move(open.back());
    open.pop_back();
    open.back().insert(open.back().end(), closed.begin(), closed.end());
  };
  for (size_t number = 0; number < program.code.size(); ++number) {
    const auto n = static_cast<ValueId>(number);
    const Code code = program.code[n].code;
    if (code == Code::kLoop || code == Code::kIf || n == placement.first_block) open.emplace_back();
    open[placement.depth[n]].push_back(n);
    if (code == Code::kEnd || code == Code::kEndIf) close();
  }
  if (placement.first_block >= 0) close();
  OB_CHECK(open.size() == 1);
  ProgramBuilder b;
  b.SetReadOnly(ReadOnlySlots(program));
  b.SetAround(program);
  std::vector<ValueId> made(program.code.size(), -1);
  for (const ValueId n : open[0]) {
    Instruction i = program.code[n];
    for (ValueId& s : i.src) s = made[s];
    made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

}  // namespace outboard::program
