// Blocks, warps and groups of lanes take turns.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

namespace {
// Turns of all warps that only look at barriers before the wait counts as endless.
constexpr uint64_t kSpinsMax = 1000;
// Turns after which a copy lands although something still runs.
constexpr uint64_t kPollsMax = 1000;
}  // namespace

Execution::Execution(Machine* machine, const LoadedModule& module, const Function& function,
                     const LaunchConfig& config, int run)
    : machine_(machine),
      memory_(machine->memory_),
      module_(module),
      function_(function),
      config_(config),
      run_(run),
      counting_(run == 0),
      random_(machine->options_.seed * 1000003 + static_cast<uint64_t>(run)),
      clock_base_(machine->clock_base_),
      clock_end_(machine->clock_base_) {
  for (int i = 0; i < 3; ++i) {
    cluster_shape_[i] =
        config.cluster[i] != 0 ? config.cluster[i] : std::max(1, function.cluster[i]);
  }
  block_count_ = config.grid[0] * config.grid[1] * config.grid[2];
}

absl::Status Execution::Run() {
  std::vector<Warp*> order;
  uint64_t polls = 0;
  while (status_.ok()) {
    StartBlocks();
    if (blocks_.empty()) break;
    order.clear();
    for (const auto& block : blocks_) {
      const size_t first = order.size();
      for (const auto& warp : block->warps)
        if (warp->live != 0) order.push_back(warp.get());
      if (run_ == 1) std::reverse(order.begin() + static_cast<long>(first), order.end());
    }
    if (run_ > 1) std::shuffle(order.begin(), order.end(), random_);
    bool moved = false, spinning = false;
    for (Warp* warp : order) {
      if (warp->live != 0 && TakeTurn(warp)) moved = true;
      spinning |= warp->spun;
      if (!status_.ok()) break;
    }
    if (!status_.ok()) break;
    RemoveDone();
    if (run_ > 1 && !in_flight_.empty() && Random(8) == 0) moved |= DeliverOne();
    spins_ = moved ? 0 : spins_ + 1;
    if (!moved && spinning && spins_ < kSpinsMax) {
      DeliverOne();
      continue;
    }
    // A warp may poll memory for what a copy brings.
    if (!in_flight_.empty() && ++polls % kPollsMax == 0) moved |= DeliverOne();
    if (!moved && !blocks_.empty() && !DeliverOne()) {
      ReportStuck();
      break;
    }
    if (warp_instructions_ > machine_->options_.warp_instructions_max) {
      Fail(absl::DeadlineExceededError(
          absl::StrCat("kernel ", function_.name, " does not end: more than ",
                       machine_->options_.warp_instructions_max, " instructions of warps")));
    }
  }
  for (const auto& block : blocks_) EndClocks(*block);
  if (counting_) machine_->counters_.warp_instructions += warp_instructions_;
  if (counting_) machine_->counters_.slept_ns += slept_ns_;
  return status_;
}

void Execution::StartBlocks() {
  const uint32_t size = cluster_shape_[0] * cluster_shape_[1] * cluster_shape_[2];
  const size_t resident = static_cast<size_t>(std::max(1, machine_->options_.resident_blocks));
  const uint32_t cluster_count = block_count_ / size;
  while (next_block_ < cluster_count && (blocks_.empty() || blocks_.size() + size <= resident)) {
    // Later runs start with the last blocks.
    uint32_t index = run_ % 2 == 0 ? next_block_ : cluster_count - 1 - next_block_;
    ++next_block_;
    auto cluster = std::make_unique<Cluster>();
    std::array<uint32_t, 3> corner = {};
    for (int i = 0; i < 3; ++i) {
      const uint32_t along = config_.grid[i] / cluster_shape_[i];
      corner[i] = index % along * cluster_shape_[i];
      index /= along;
    }
    for (uint32_t rank = 0; rank < size; ++rank) {
      const std::array<uint32_t, 3> position = {
          corner[0] + rank % cluster_shape_[0],
          corner[1] + rank / cluster_shape_[0] % cluster_shape_[1],
          corner[2] + rank / cluster_shape_[0] / cluster_shape_[1]};
      const uint32_t id =
          position[0] + config_.grid[0] * (position[1] + config_.grid[1] * position[2]);
      std::unique_ptr<Block> block = std::make_unique<Block>();
      block->id = id;
      block->position = position;
      block->rank = rank;
      block->cluster = cluster.get();
      block->threads = static_cast<int>(config_.block[0] * config_.block[1] * config_.block[2]);
      block->engine_clock = clock_base_;
      const int shared = module_.module->dynamic_shared + static_cast<int>(config_.shared_bytes);
      block->shared = std::make_unique<Region>(0, shared);
      if (machine_->options_.keeps_leftovers) TakeShared(block->shared.get());
      for (int first = 0; first < block->threads; first += 32) {
        auto warp = std::make_unique<Warp>();
        warp->inexact = machine_->options_.inexact;
        warp->block = block.get();
        warp->index = first / 32;
        const int lanes = std::min(32, block->threads - first);
        warp->live = warp->existed = lanes == 32 ? ~0u : (1u << lanes) - 1;
        warp->groups.reserve(40);
        Group all;
        all.mask = warp->live;
        warp->groups.push_back(all);
        warp->clocks.own[warp->index] = clock_base_;
        warp->sync_clock = clock_base_;
        warp->rows = std::make_unique<uint64_t[]>(static_cast<size_t>(function_.rows) * 32);
        if (function_.local_bytes > 0) {
          warp->local.resize(static_cast<size_t>(function_.local_bytes) * 32);
          warp->local_state.resize(warp->local.size());
        }
        if (machine_->options_.keeps_leftovers) TakeRegisters(warp.get());
        FillRows(warp.get());
        if (!function_.product_rows.empty()) {
          warp->pending_write.resize(static_cast<size_t>(function_.rows));
          warp->pending_read.resize(static_cast<size_t>(function_.rows));
          warp->unfenced.resize(static_cast<size_t>(function_.rows));
        }
        block->warps.push_back(std::move(warp));
        ++block->live_warps;
      }
      cluster->blocks.push_back(block.get());
      blocks_.push_back(std::move(block));
    }
    if (run_ == 1) std::reverse(blocks_.end() - size, blocks_.end());
    clusters_.push_back(std::move(cluster));
  }
}

void Execution::EndClocks(const Block& block) {
  for (const auto& warp : block.warps)
    for (const uint32_t clock : warp->clocks.own) clock_end_ = std::max(clock_end_, clock);
  clock_end_ = std::max(clock_end_, block.engine_clock);
}

void Execution::RemoveDone() {
  for (size_t c = 0; c < clusters_.size();) {
    Cluster* cluster = clusters_[c].get();
    const bool done = std::all_of(cluster->blocks.begin(), cluster->blocks.end(),
                                  [](const Block* block) { return block->live_warps == 0; });
    if (!done) {
      ++c;
      continue;
    }
    CheckLeftShared(*cluster);
    for (Block* block : cluster->blocks) {
      FinishCopies(block);
      EndClocks(*block);
      if (machine_->options_.keeps_leftovers) LeaveLeftovers(*block);
    }
    blocks_.erase(std::remove_if(blocks_.begin(), blocks_.end(),
                                 [&](const auto& block) { return block->cluster == cluster; }),
                  blocks_.end());
    clusters_.erase(clusters_.begin() + static_cast<long>(c));
  }
}

void Execution::FillRows(Warp* warp) {
  const Block& block = *warp->block;
  const auto fill = [&](int row, uint64_t value) { std::fill_n(warp->row(row), 32, value); };
  for (const auto& [row, value] : function_.constants) fill(row, value);
  for (const auto& [row, name] : function_.globals) fill(row, module_.globals.at(name));
  const auto& grid = config_.grid;
  const auto& shape = config_.block;
  const auto& cluster = cluster_shape_;
  for (const auto& [row, special] : function_.specials) {
    uint64_t* values = warp->row(row);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint32_t thread = static_cast<uint32_t>(warp->index) * 32 + lane;
      uint64_t value = 0;
      switch (special) {
        case Special::kTidX: value = thread % shape[0]; break;
        case Special::kTidY: value = thread / shape[0] % shape[1]; break;
        case Special::kTidZ: value = thread / shape[0] / shape[1]; break;
        case Special::kNtidX: value = shape[0]; break;
        case Special::kNtidY: value = shape[1]; break;
        case Special::kNtidZ: value = shape[2]; break;
        case Special::kCtaidX: value = block.position[0]; break;
        case Special::kCtaidY: value = block.position[1]; break;
        case Special::kCtaidZ: value = block.position[2]; break;
        case Special::kNctaidX: value = grid[0]; break;
        case Special::kNctaidY: value = grid[1]; break;
        case Special::kNctaidZ: value = grid[2]; break;
        case Special::kLaneid: value = lane; break;
        case Special::kWarpid: value = static_cast<uint64_t>(warp->index); break;
        case Special::kNwarpid: value = block.warps.size(); break;
        case Special::kSmid: value = block.id % 132; break;
        case Special::kNsmid: value = 132; break;
        case Special::kGridid: value = machine_->counters_.launches; break;
        case Special::kLanemaskEq: value = 1u << lane; break;
        case Special::kLanemaskLe: value = lane == 31 ? ~0u : (2u << lane) - 1; break;
        case Special::kLanemaskLt: value = (1u << lane) - 1; break;
        case Special::kLanemaskGe: value = ~0u << lane; break;
        case Special::kLanemaskGt: value = lane == 31 ? 0 : ~0u << (lane + 1); break;
        case Special::kClusteridX: value = block.position[0] / cluster[0]; break;
        case Special::kClusteridY: value = block.position[1] / cluster[1]; break;
        case Special::kClusteridZ: value = block.position[2] / cluster[2]; break;
        case Special::kNclusteridX: value = grid[0] / cluster[0]; break;
        case Special::kNclusteridY: value = grid[1] / cluster[1]; break;
        case Special::kNclusteridZ: value = grid[2] / cluster[2]; break;
        case Special::kClusterCtaidX: value = block.position[0] % cluster[0]; break;
        case Special::kClusterCtaidY: value = block.position[1] % cluster[1]; break;
        case Special::kClusterCtaidZ: value = block.position[2] % cluster[2]; break;
        case Special::kClusterNctaidX: value = cluster[0]; break;
        case Special::kClusterNctaidY: value = cluster[1]; break;
        case Special::kClusterNctaidZ: value = cluster[2]; break;
        case Special::kClusterCtarank: value = block.rank; break;
        case Special::kClusterNctarank: value = cluster[0] * cluster[1] * cluster[2]; break;
        case Special::kDynamicShared: value = config_.shared_bytes; break;
        case Special::kTotalShared: value = block.shared->bytes(); break;
        case Special::kIsExplicitCluster: value = cluster[0] * cluster[1] * cluster[2] > 1; break;
      }
      values[lane] = value;
    }
  }
}

int Execution::PickGroup(Warp* warp) {
  int picked = -1;
  int ready = 0;
  for (int i = 0; i < static_cast<int>(warp->groups.size()); ++i) {
    const Group& group = warp->groups[i];
    if (group.wait != Wait::kNone) continue;
    ++ready;
    if (picked < 0) {
      picked = i;
    } else if (run_ == 0 ? group.pc < warp->groups[picked].pc
                         : Random(static_cast<uint32_t>(ready)) == 0) {
      picked = i;
    }
  }
  return picked;
}

bool Execution::TakeTurn(Warp* warp) {
  // Long turns are fast, short ones mix the warps.
  const uint64_t steps = run_ == 0 ? 512 : run_ == 1 ? 128 : 1 + Random(64);
  const uint64_t before = warp_instructions_;
  warp->spun = false;
  warp->turn_limit = warp_instructions_ + steps;
  while (warp_instructions_ < warp->turn_limit && status_.ok()) {
    const int picked = PickGroup(warp);
    if (picked < 0) break;
    RunGroup(warp, picked);
    MergeGroups(warp);
  }
  if (run_ == 0 && warp->groups.size() > 1) {
    // The lowest group may spin on what a higher one does: let each have a turn.
    for (int i = 0; i < static_cast<int>(warp->groups.size()) && status_.ok(); ++i) {
      if (i >= static_cast<int>(warp->groups.size())) break;
      if (warp->groups[i].wait != Wait::kNone) continue;
      warp->turn_limit = warp_instructions_ + 16;
      RunGroup(warp, i);
      MergeGroups(warp);
    }
  }
  return warp_instructions_ != before && !warp->spun;
}

void Execution::MergeGroups(Warp* warp) {
  std::vector<Group>& groups = warp->groups;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].mask == 0) continue;
    if (groups[i].wait != Wait::kNone && groups[i].wait != Wait::kLanes) continue;
    for (size_t j = i + 1; j < groups.size(); ++j) {
      if (groups[j].mask == 0 || groups[j].pc != groups[i].pc) continue;
      if (groups[j].wait != Wait::kNone && groups[j].wait != Wait::kLanes) continue;
      groups[i].mask |= groups[j].mask;
      groups[i].wait = Wait::kNone;
      groups[j].mask = 0;
    }
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const Group& group) { return group.mask == 0; }),
               groups.end());
}

// After a step while the warp has several groups: whether this one goes on.
bool Execution::Settle(Warp* warp, Group* group) {
  bool others_lower = false;
  for (Group& other : warp->groups) {
    if (&other == group || other.mask == 0) continue;
    if (other.wait != Wait::kNone && other.wait != Wait::kLanes) continue;
    if (other.pc == group->pc) {
      group->mask |= other.mask;
      other.mask = 0;
    } else if (other.wait == Wait::kNone && other.pc < group->pc) {
      others_lower = true;
    }
  }
  return run_ != 0 || !others_lower;
}

void Execution::RunGroup(Warp* warp, int index) {
  Group* group = &warp->groups[index];
  const Instruction* code = function_.code.data();
  while (warp_instructions_ < warp->turn_limit) {
    const Instruction& in = code[group->pc];
    uint32_t mask = group->mask;
    if (in.guard >= 0) {
      const uint64_t* guard = warp->row(in.guard);
      uint32_t set = 0;
      for (int lane = 0; lane < 32; ++lane) set |= static_cast<uint32_t>(guard[lane] & 1) << lane;
      mask &= in.guard_negated ? ~set : set;
    }
    ++warp_instructions_;
    if (counting_) machine_->counters_.lane_instructions += std::popcount(mask);
    if (mask == 0) {
      ++group->pc;
    } else {
      if (!warp->pending_write.empty()) CheckPendingRows(warp, in);
      Step(warp, group, in, mask);
      if (!status_.ok() || group->wait != Wait::kNone || group->mask == 0) return;
    }
    if (warp->groups.size() > 1 && !Settle(warp, group)) return;
  }
}

// Entries that a merge has emptied are used first. At most 32 are in use at a time, the reserved
// capacity, so `groups` is never reallocated and pointers into it stay valid during a turn.
static void AddGroup(Warp* warp, const Group& added) {
  for (Group& group : warp->groups) {
    if (group.mask != 0) continue;
    group = added;
    return;
  }
  warp->groups.push_back(added);
}

void Execution::Branch(Warp* warp, Group* group, const Instruction& in, uint32_t taken) {
  if (taken == group->mask) {
    group->pc = in.target;
    return;
  }
  Group other;
  other.mask = taken;
  other.pc = in.target;
  group->mask &= ~taken;
  ++group->pc;
  AddGroup(warp, other);
}

void Execution::SplitGuard(Warp* warp, Group** group, uint32_t mask) {
  if (mask == (*group)->mask) return;
  Group rest;
  rest.mask = (*group)->mask & ~mask;
  rest.pc = (*group)->pc + 1;
  (*group)->mask = mask;
  AddGroup(warp, rest);
}

void Execution::LeaveLanes(Warp* warp, Group* group, uint32_t lanes) {
  group->mask &= ~lanes;
  warp->live &= ~lanes;
  if (warp->live == 0) --warp->block->live_warps;
  if (group->mask != 0) ++group->pc;
  for (Group& other : warp->groups)
    if (other.wait == Wait::kLanes) other.wait = Wait::kNone;
}

void Execution::Step(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  switch (in.op) {
    case Op::kBra: return Branch(warp, group, in, mask);
    case Op::kRet:
    case Op::kExit:
      LeaveLanes(warp, group, mask);
      CheckRegisters(warp, in);
      return CheckAnyWaited(warp, in);
    case Op::kTrap:
      return Fail(absl::AbortedError(
          absl::StrCat("kernel ", function_.name, " trapped at line ", in.line)));
    case Op::kLd: Load(warp, in, mask); break;
    case Op::kSt: Store(warp, in, mask); break;
    case Op::kAtom:
    case Op::kRed: AtomicAccess(warp, in, mask); break;
    case Op::kFence: Fence(warp); break;
    case Op::kProxyFence: ProxyFence(warp, in, mask); break;
    case Op::kGriddep: WaitForPrerequisites(warp, in, mask); break;
    case Op::kNop: slept_ns_ += static_cast<uint64_t>(in.offset); break;  // or sleeps
    case Op::kPrefetch:
    case Op::kTensorPrefetch: break;
    case Op::kBulkPrefetch: CheckBulkPrefetch(warp, in, mask); break;
    case Op::kCvt: Convert(warp, in, mask); break;
    case Op::kCvtPair: ConvertPair(warp, in, mask); break;

    case Op::kShfl:
    case Op::kVote:
    case Op::kMatch:
    case Op::kRedux:
    case Op::kElect:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      if (in.op == Op::kShfl)
        Shuffle(warp, in, mask);
      else if (in.op == Op::kMatch)
        Match(warp, in, mask);
      else if (in.op == Op::kRedux)
        Redux(warp, in, mask);
      else
        Vote(warp, in, mask);
      break;
    case Op::kActivemask: {
      for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) warp->row(in.d)[lane] = group->mask;
      break;
    }
    case Op::kWarpSync:
      SplitGuard(warp, &group, mask);
      if (!WarpBarrier(warp, group, in, mask)) return;
      break;
    case Op::kBarSync:
    case Op::kBarArrive:
    case Op::kBarRed:
      SplitGuard(warp, &group, mask);
      if (in.aligned && !HaveLanes(warp, group, in, mask)) return;
      return BlockBarrier(warp, group, in, mask);
    case Op::kClusterArrive:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      ClusterArrive(warp, in);
      break;
    case Op::kClusterWait:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      if (!ClusterWait(warp, group)) return;
      break;
    case Op::kSetmaxnreg:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      if (!SetRegisters(warp, group, in)) return;
      break;

    case Op::kCpAsync: CopyAsync(warp, in, mask); break;
    case Op::kCpCommit: CopyCommit(warp, mask); break;
    case Op::kCpWait: CopyWait(warp, in, mask); break;
    case Op::kCpMbarArrive:
    case Op::kMbarInit:
    case Op::kMbarInval:
    case Op::kMbarArrive:
    case Op::kMbarExpect:
    case Op::kMbarWait:
      SplitGuard(warp, &group, mask);
      if (!Mbarrier(warp, group, in, mask)) return;
      break;
    case Op::kBulkLoad:
    case Op::kBulkStore:
    case Op::kTensorLoad:
    case Op::kTensorStore:
    case Op::kBulkCommit:
    case Op::kBulkWait:
      SplitGuard(warp, &group, mask);
      if (!Bulk(warp, group, in, mask)) return;
      break;

    case Op::kLdmatrix:
    case Op::kStmatrix:
    case Op::kMma:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      if (in.op == Op::kMma)
        Mma(warp, in);
      else if (in.op == Op::kLdmatrix)
        LoadMatrix(warp, in, mask);
      else
        StoreMatrix(warp, in, mask);
      break;
    case Op::kWgmma:
    case Op::kWgmmaFence:
    case Op::kWgmmaCommit:
    case Op::kWgmmaWait:
      SplitGuard(warp, &group, mask);
      if (!HaveLanes(warp, group, in, mask)) return;
      if (!Wgmma(warp, group, in, mask)) return;
      break;
    default: Scalar(warp, in, mask); break;
  }
  ++group->pc;
}

// Nothing can run and nothing is in flight: says who waits for what, once for each place.
void Execution::ReportStuck() {
  std::map<std::pair<int, int>, bool> told;
  for (const auto& block : blocks_) {
    for (const auto& warp : block->warps) {
      for (const Group& group : warp->groups) {
        const Instruction& in = function_.code[group.pc];
        const int lane = std::countr_zero(group.mask);
        if (std::exchange(told[{in.line, static_cast<int>(group.wait)}], true)) continue;
        switch (group.wait) {
          case Wait::kLanes: {
            const bool barrier =
                in.op == Op::kBarSync || in.op == Op::kBarArrive || in.op == Op::kBarRed;
            Tell(barrier ? ReportKind::kBarrierMissed : ReportKind::kDivergence, in, warp.get(),
                 lane, Space::kGeneric, 0,
                 absl::StrCat("lanes that this instruction needs never arrive; ",
                              std::popcount(group.mask), " of ", std::popcount(warp->existed),
                              " are here"));
            break;
          }
          case Wait::kBarrier: {
            const NamedBarrier& barrier = block->barriers[group.extra];
            Tell(ReportKind::kBarrierMissed, in, warp.get(), lane, Space::kGeneric, 0,
                 absl::StrCat("barrier ", group.extra, " has ", barrier.arrived, " of ",
                              barrier.expected, " threads"));
            break;
          }
          case Wait::kCluster:
            Tell(ReportKind::kBarrierMissed, in, warp.get(), lane, Space::kCluster, 0,
                 "the cluster's barrier is never complete");
            break;
          case Wait::kMbarrier:
            Tell(ReportKind::kEndlessWait, in, warp.get(), lane, Space::kShared, group.address,
                 "no arrival or copy is left that could complete this phase");
            break;
          case Wait::kRegisters:
            Tell(ReportKind::kEndlessWait, in, warp.get(), lane, Space::kGeneric, 0,
                 absl::StrCat("the block's pool has ", block->registers_free,
                              " registers, and nobody gives more"));
            break;
          case Wait::kWarpgroup:
            Tell(ReportKind::kDivergence, in, warp.get(), lane, Space::kGeneric, 0,
                 "the other warps of the warpgroup never arrive");
            break;
          case Wait::kNone:
          case Wait::kCopies:
            if (warp->spun)
              Tell(ReportKind::kEndlessWait, in, warp.get(), lane, Space::kShared, 0,
                   "polls a barrier that nothing can complete");
            break;
        }
      }
    }
  }
  Fail(absl::FailedPreconditionError("nothing can run"));
}

void Execution::Tell(ReportKind kind, const Instruction& in, Warp* warp, int lane, Space space,
                     uint64_t address, std::string detail, int64_t other_who) {
  ++told_;
  // The first report of a run ends it: what follows from a broken rule says little.
  Fail(absl::FailedPreconditionError(NameOf(kind)));
  if (machine_->reports_.size() >= machine_->options_.reports_max) return;
  Report report;
  report.kind = kind;
  report.kernel = function_.name;
  report.line = in.line;
  const auto text = function_.lines.find(in.line);
  if (text != function_.lines.end()) report.text = text->second;
  report.block = warp->block->id;
  report.thread = warp->index * 32 + lane;
  if (other_who >= 0) {
    report.other_block = other_who >> 12;
    report.other_thread = static_cast<int>(other_who & kThreadMask);
  }
  report.space = space;
  report.address = address;
  report.detail = std::move(detail);
  machine_->reports_.push_back(std::move(report));
}

}  // namespace outboard::ptx
