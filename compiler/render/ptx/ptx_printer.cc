#include "compiler/render/ptx/ptx_printer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/gpu_support.h"

namespace outboard::render {

using program::Code;
using program::Grid;
using program::ValueId;

namespace {

constexpr int kFragmentLanes = 8;  // of MMA's a, of 16 bits

bool Has(const program::Program& program, Code code) {
  return std::ranges::any_of(program.code, [&](const auto& i) { return i.code == code; });
}

bool IsHopper(const program::Program& program) {
  return std::ranges::any_of(program.code, [](const auto& i) { return program::IsHopper(i.code); });
}

// Whether a matrix unit multiplies what is made of its products, as values of scores are.
bool MultipliesProducts(const program::Program& program) {
  std::vector<bool> made(program.code.size());  // of a product
  const auto is_made = [&](ValueId n) { return made[static_cast<size_t>(n)]; };
  for (size_t n = 0; n < program.code.size(); ++n) {
    const auto& i = program.code[n];
    if (i.code == Code::kMma && (is_made(i.src[0]) || is_made(i.src[1]))) return true;
    made[n] = i.code == Code::kMma || std::ranges::any_of(i.src, is_made);
  }
  return false;
}

// Whether what a matrix unit computes is used in the same loop, as scores are: it is multiplied
// again, or threads tell each other maxima of it.
bool ComputesScores(const program::Program& program) {
  return Has(program, Code::kMma) &&
         (Has(program, Code::kShuffle) || MultipliesProducts(program));
}

// Of a thread where two blocks share a multiprocessor.
int64_t HalfOfRegisters(const program::Program& program) {
  return kCudaRegisters / (2 * program.Extent(Grid::kThread));
}

// Those of private memory, and some for everything else.
int64_t HeldRegisters(const program::Program& program) {
  constexpr int64_t kRegisterBytes = 4, kOthers = 32;
  int64_t held = kOthers;
  for (const auto& i : program.code)
    if (IsPrivateAlloc(i))
      held += i.imm[1] * std::max<int64_t>(1, ByteWidth(i.dtype) / kRegisterBytes);
  return held;
}

// At a barrier, for no product by a matrix unit alone, with so few values in private memory that
// half of the registers hold them.
bool WaitsInLoop(const program::Program& program) {
  int loops = 0;
  bool waits = false;
  const bool scores = ComputesScores(program);
  for (const auto& i : program.code) {
    if ((i.code == Code::kMma && !scores) || program::IsHopper(i.code)) return false;
    if (i.code == Code::kLoop) ++loops;
    if (i.code == Code::kEnd) --loops;
    waits = waits || (i.code == Code::kBarrier && loops > 0);
  }
  return waits && HeldRegisters(program) <= HalfOfRegisters(program);
}

// Threads that multiply by themselves, with sums that leave few of half of the registers; and those
// of attention's gradients, whose sums take half of all.
bool IsShortOfRegisters(const program::Program& program) {
  if (MultipliesProducts(program)) return 2 * HeldRegisters(program) > kCudaThreadRegistersMax;
  return WaitsInLoop(program) && !Has(program, Code::kMma) &&
         4 * HeldRegisters(program) > 3 * HalfOfRegisters(program);
}

// Of eight warps that each keep so many sums of a product there is no second block, for which the
// assembler would leave room by itself: it would spill half of them.
bool NeedsAllRegisters(const program::Program& program) {
  constexpr int64_t kThreads = 256, kSums = 128;
  int64_t held = 0;
  for (const auto& i : program.code)
    if (IsPrivateAlloc(i)) held += i.imm[1];
  return Has(program, Code::kMma) && held >= kSums && program.Extent(Grid::kThread) >= kThreads &&
         !ComputesScores(program);
}

// Rows in the block's memory leave none for a second block, whatever registers it would need.
bool IsAlone(const program::Program& program, const Target& target) {
  return program.shared_bytes() > target.half_of_block_bytes() && !Has(program, Code::kMma) &&
         !Has(program, Code::kWgmma);
}

}  // namespace

PtxPrinter::PtxPrinter(const program::Program& program, const Target& target, const GridShape& grid)
    : program_(program),
      target_(target),
      grid_(grid),
      bounds_(BoundsOf(program)),
      divisors_(DivisorsOf(program)),
      divides_registers_(Has(program, Code::kMaxRegisters)),
      values_(program.code.size()),
      is_moved_(program.code.size()) {}

absl::Status PtxPrinter::CheckUnits() const {
  const auto none_for = [&](const std::string& what) {
    return absl::UnimplementedError(absl::StrCat(target_.arch, " has no form for ", what));
  };
  for (const Instruction& i : program_.code) {
    if (program::IsHopper(i.code) && target_.arch != "sm_90a" &&
        !(program::IsOfCluster(i.code) && target_.cluster_blocks_max() > 1))
      return none_for(std::string(Name(i.code)));
    if (i.code == Code::kMma && ByteWidth(at(i.src[0]).dtype) == 1 && target_.arch == "sm_80")
      return none_for("MMA of 8-bit floats");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PtxPrinter::Run(const std::string& symbol) {
  OB_RETURN_IF_ERROR(CheckForGpu(program_, target_));
  OB_RETURN_IF_ERROR(CheckUnits());
  // From sm_90 on a graph may start a kernel when all blocks of the one in front of it run
  // (docs/decisions/115-uploads-beside-work.md). All it does comes after the wait, but for asking
  // for what it will read; the launch behind it may start then.
  if (target_.arch.starts_with("sm_9")) {
    AskForSteady();
    text_.Line("griddepcontrol.wait");
    text_.Line("griddepcontrol.launch_dependents");
  }
  if (program_.reads_vars()) {
    vars_ = text_.New(Width::k64);
    text_.Line("ld.param.b64 ", vars_, ", [vars]");
  }
  LeaveBehindGrid();
  OpenMemories();
  FindChanges();
  FindUses();
  FindSharedAddresses();
  FindDivisors();
  is_short_of_registers_ = IsShortOfRegisters(program_);
  if (is_short_of_registers_) FindComputedAgain();
  FindTakenApart();
  leaving_ = FindLeaving();
  if (leaving_ < 0) PrintPrologue();
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) Print(n);
  text_.Line("ret");
  return absl::StrCat(shared_, "\n.visible .entry ", symbol, "(", Parameters(), "\n)\n",
                      Directives(), "{\n", text_.Declarations(), text_.lines(), "}\n");
}

// Returns the IF around all that the kernel does whose condition is the same for all threads of a
// block, as of blocks that lie beyond the end of a VAR; -1 if there is none.
PtxPrinter::ValueId PtxPrinter::FindLeaving() const {
  std::vector<bool> of_block(program_.code.size());  // equal for all threads
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kIf) {
      const Instruction& last = program_.code.back();
      const bool is_all = last.code == Code::kEndIf && last.src[0] == n;
      return is_all && of_block[static_cast<size_t>(i.src[0])] ? n : -1;
    }
    if (!program::IsPure(i.code) && i.code != Code::kAlloc) return -1;
    of_block[static_cast<size_t>(n)] =
        (i.code != Code::kSpecial || i.imm[0] == static_cast<int64_t>(Grid::kBlock)) &&
        std::ranges::all_of(i.src, [&](ValueId s) { return of_block[static_cast<size_t>(s)]; });
  }
  return -1;
}

void PtxPrinter::PrintPrologue() {
  LoadParameters();
  for (const auto& [memory, name] : shared_names_) text_.Line("mov.b32 ", memory, ", ", name);
  if (!warpgroup_.IsNone()) NumberWarpgroups();
}

std::string PtxPrinter::Directives() const {
  std::string text;
  if (program_.cluster > 1)
    absl::StrAppend(&text, ".explicitcluster\n.reqnctapercluster ", program_.cluster, ", 1, 1\n");
  absl::StrAppend(&text, ".maxntid ", program_.Extent(Grid::kThread), ", 1, 1\n");
  // While one block waits at the barriers of its loop, another one computes: each may have half of
  // the registers. Products by matrix units say by their tiles how many they need. Where warpgroups
  // divide registers among themselves, the assembler gives a thread all that one block leaves room
  // for.
  if (WaitsInLoop(program_)) {
    text += ".minnctapersm 2\n";
  } else if (NeedsAllRegisters(program_) || IsAlone(program_, target_) || divides_registers_) {
    text += ".minnctapersm 1\n";
  }
  return text;
}

void PtxPrinter::OpenMemories() {
  written_.assign(static_cast<size_t>(program_.buffer_count), false);
  for (const Instruction& i : program_.code) {
    if (i.code == Code::kStore && at(i.src[0]).code == Code::kBuffer)
      written_[static_cast<size_t>(at(i.src[0]).imm[0])] = true;
    if (i.code == Code::kWgmma) accumulators_.insert(i.src[0]);
    if (i.code == Code::kBoxStore)
      written_[program_.maps[static_cast<size_t>(at(i.src[2]).imm[0])].slot] = true;
  }
  if (Has(program_, Code::kWgmma) || Has(program_, Code::kWgSync))
    warpgroup_ = text_.New(Width::k32);
  // What a block has without asking may be declared as arrays. More must not: the assembler refuses
  // it, and launches ask for it.
  PtxOperand all;  // memory of the block
  has_block_memory_ = IsHopper(program_) || program_.shared_bytes() > target_.shared_bytes;
  if (has_block_memory_) {
    absl::StrAppend(&shared_, ".extern .shared .align ", program::kSwizzleAlign,
                    " .b8 block_memory[];\n");
    all = text_.New(Width::k32);
    shared_names_.emplace_back(all, "block_memory");
  }
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    if (i.code != Code::kAlloc) continue;
    if (IsPrivateAlloc(i)) {
      Elements& elements = privates_[n];
      for (int64_t k = 0; k < i.imm[1]; ++k) elements.push_back(text_.New(WidthOf(i.dtype)));
    } else if (!all.IsNone()) {
      shared_bases_[n] = {all, program_.SharedOffset(n)};
    } else {
      constexpr int kSharedAlign = 16;  // of the widest access
      absl::StrAppend(&shared_, ".shared .align ", kSharedAlign, " .b8 shared", n, "[",
                      i.imm[1] * ByteWidth(i.dtype), "];\n");
      shared_names_.emplace_back(text_.New(Width::k32), absl::StrCat("shared", n));
      shared_bases_[n] = {shared_names_.back().first, 0};
    }
  }
}

// Before anything else: what follows relies on the number being one of the program's.
void PtxPrinter::LeaveBehindGrid() {
  if (grid_.rows == 1) return;
  const PtxOperand row = text_.New(Width::k32), column = text_.New(Width::k32);
  text_.Line("mov.u32 ", row, ", %ctaid.y");
  text_.Line("mov.u32 ", column, ", %ctaid.x");
  const PtxOperand first = text_.Value("cvt.u64.u32", Width::k64, {column});
  block_ = text_.Value("mad.wide.u32", Width::k64, {row, Integer(grid_.columns), first});
  const PtxOperand behind = text_.Value(
      "setp.ge.u64", Width::kPred, {block_, Integer(program_.Extent(Grid::kBlock), Width::k64)});
  text_.GuardedLine(behind, "ret");
}

// The number is that of a warp's first thread, which all threads of a warp have. Only of what a
// shuffle gives does the assembler know that: it then computes descriptors and the addresses of
// barriers once for a warp, where it would otherwise copy each of them there (R2UR). All threads
// are here.
void PtxPrinter::NumberWarpgroups() {
  constexpr int kWarpgroupShift = 7;
  static_assert(1 << kWarpgroupShift == program::kWarpgroupThreads);
  const PtxOperand thread = text_.New(Width::k32);
  text_.Line("mov.u32 ", thread, ", %tid.x");
  const PtxOperand own = text_.Value("shr.u32", Width::k32, {thread, Integer(kWarpgroupShift)});
  text_.Line("shfl.sync.idx.b32 ", warpgroup_, ", ", own, ", 0, 31, -1");
  // Barrier 0 is the block's.
  group_barrier_ = Plus(warpgroup_, Integer(1));
}

bool PtxPrinter::IsWarpgroup(ValueId value) const {
  const Instruction& i = at(value);
  if (warpgroup_.IsNone() || i.code != Code::kAlu || i.op != Op::kIDiv) return false;
  const Instruction &thread = at(i.src[0]), &by = at(i.src[1]);
  return thread.code == Code::kSpecial && thread.imm[0] == static_cast<int64_t>(Grid::kThread) &&
         by.code == Code::kConst && by.imm[0] == program::kWarpgroupThreads;
}

void PtxPrinter::Print(ValueId n) {
  const Instruction& i = at(n);
  switch (i.code) {
    case Code::kBuffer:
    case Code::kMap:
    case Code::kAlloc: return;
    case Code::kCommit:
    case Code::kWait: return Await(n);
    case Code::kLoop: return OpenLoop(n);
    case Code::kEnd:
      CloseLoop();
      ComputeAgain(n);
      return PrintMoved(n);
    case Code::kIf:
      ShareAddresses(n);
      OpenIf(Lane(i.src[0], 0));
      if (n == leaving_) PrintPrologue();
      return PrintMoved(n);
    case Code::kEndIf: return CloseIf();
    case Code::kStore: return IsPrivate(i.src[0]) ? StorePrivate(n) : Store(n);
    case Code::kCopy: return Copy(n);
    case Code::kBarrier: return text_.Line("bar.sync 0");
    default:
      if (program::IsHopper(i.code) && !program::HasValue(i.code)) {
        PrintHopper(n);
        return PrintMoved(n);
      }
      if (!IsUsed(n) || is_moved_[static_cast<size_t>(n)] || IsPrinted(n)) return;
      if (!IsQuotient(n)) return PrintValue(n);
      const std::vector<ValueId> quotients = QuotientsWith(n);
      PrintQuotients(quotients);
      for (const ValueId quotient : quotients) FindReciprocals(quotient);
      return;
  }
}

PtxOperand PtxPrinter::Special(ValueId n) {
  const Instruction& i = at(n);
  if (i.imm[1] == 1) return Integer(0);
  const auto axis = static_cast<Grid>(i.imm[0]);
  if (axis == Grid::kBlock && grid_.rows > 1)
    return IsSmall(n) ? text_.Value("cvt.u32.u64", Width::k32, {block_}) : block_;
  const PtxOperand number = text_.New(Width::k32);
  text_.Line("mov.u32 ", number, axis == Grid::kBlock ? ", %ctaid.x" : ", %tid.x");
  return number;
}

void PtxPrinter::PrintMoved(ValueId place) {
  const auto values = moved_to_.find(place);
  if (values == moved_to_.end()) return;
  for (const ValueId value : values->second) PrintValue(value);
}

void PtxPrinter::PrintValue(ValueId n) {
  values_[static_cast<size_t>(n)] = Compute(n);
  if (!reciprocals_.empty()) FindReciprocals(n);
}

PtxPrinter::Values PtxPrinter::Compute(ValueId n) {
  const Instruction& i = at(n);
  Values out;
  switch (i.code) {
    case Code::kConst: return {IsSmall(n) ? Integer(i.imm[0]) : Const(i.dtype, i.imm[0])};
    case Code::kVar: {
      const Width width = IsSmall(n) ? Width::k32 : Width::k64;
      const PtxOperand value = text_.New(width);
      text_.Line("ld.global.nc.b", width == Width::k32 ? 32 : 64, " ", value, ", ",
                 Address{vars_, i.imm[0] * static_cast<int64_t>(sizeof(int64_t))});
      return {value};
    }
    case Code::kSpecial: return {Special(n)};
    case Code::kAlu:
      if (IsDecided(n)) return {Integer(bounds_[static_cast<size_t>(n)].min, Width::kPred)};
      if (const auto [number, limit] = BelowConstant(n); number >= 0)
        return {
            text_.Value("setp.lt.s32", Width::kPred, {AsPrinted(number, 0), Integer(limit)})};
      return IsWarpgroup(n) ? Values{warpgroup_} : Arithmetic(n);
    case Code::kCast:
      if (at(i.src[0]).dtype == DType::kF32 &&
          ((i.dtype == DType::kBF16 && i.lanes % 2 == 0) ||
           (i.dtype == DType::kF16 && i.lanes == kFragmentLanes)))
        return NarrowToPairs(n);
      if (i.dtype == DType::kF16 && IsAccumulator(i.src[0]))
        return {Cast(NotAccumulator(Lane(i.src[0], 0)), DType::kF32, i.dtype)};
      for (int lane = 0; lane < i.lanes; ++lane)
        out.push_back(Cast(AsPrinted(i.src[0], lane), PrintedType(i.src[0]), PrintedType(n)));
      return out;
    case Code::kBitcast: return BitcastLanes(n);
    case Code::kLanes:
      for (int lane = 0; lane < i.lanes; ++lane) {
        const ValueId source = i.src[i.src.size() == 1 ? 0 : static_cast<size_t>(lane)];
        out.push_back(IsSmall(n) ? AsPrinted(source, 0) : Lane(source, 0));
      }
      return out;
    case Code::kLane: return {AsPrinted(i.src[0], static_cast<int>(i.imm[0]))};
    case Code::kLoad: return IsPrivate(i.src[0]) ? LoadPrivate(n) : Load(n);
    case Code::kMma: return MatrixProduct(n);
    case Code::kShuffle: return Shuffle(n);
    case Code::kLdmatrix: return LoadMatrices(n);
    case Code::kClusterLoad: return LoadOfCluster(n);
    default: OB_CHECK(false && "no value"); return {};
  }
}

}  // namespace outboard::render
