// What sm_90a alone has beside products of warpgroups (warpgroups.cc): barriers with phases, copies
// of boxes, and what blocks of a cluster and threads of a warpgroup share.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;

// In the memory of the block with that rank.
PtxOperand PtxPrinter::ClusterAddress(const Address& own, ValueId rank) {
  return text_.Value("mapa.shared::cluster.u32", Width::k32,
                     {Plain(own), InRegister(Low(rank, 0))});
}

PtxPrinter::Values PtxPrinter::LoadOfCluster(ValueId n) {
  const Instruction& i = at(n);
  const PtxOperand there = ClusterAddress(AccessAddress(i.src[0], i.src[1]), i.src[2]);
  Values out;
  for (int lane = 0; lane < i.lanes; ++lane) out.push_back(text_.New(Width::k32));
  if (i.lanes == 1) {
    text_.Line("ld.shared::cluster.b32 ", out[0], ", ", Address{there});
  } else {
    text_.Line("ld.shared::cluster.v", i.lanes, ".b32 ", ListOf(out), ", ", Address{there});
  }
  return out;
}

void PtxPrinter::BoxCopy(ValueId n) {
  const Instruction& i = at(n);
  const bool loads = i.code == Code::kBoxLoad;
  const size_t map = loads ? 4 : 2;
  const auto number = static_cast<size_t>(at(i.src[map]).imm[0]);
  const int rank = program_.maps[number].rank();
  const Address own = AddressOf(i.src[0], i.src[1]);
  Values coordinates;
  for (int c = 0; c < rank; ++c)
    coordinates.push_back(InRegister(Low(i.src[map + 1 + static_cast<size_t>(c)], 0)));
  const std::string box = Joined("[", maps_[number], ", ", ListOf(coordinates), "]");
  if (!loads)
    return text_.Line("cp.async.bulk.tensor.", rank, "d.global.shared::cta.bulk_group ", box, ", ",
                      own);
  const Address barrier = AddressOf(i.src[2], i.src[3]);
  const std::string op = absl::StrCat("cp.async.bulk.tensor.", rank,
                                      "d.shared::cluster.global.mbarrier::complete_tx::bytes");
  if (i.imm[0] == 0) return text_.Line(op, " ", own, ", ", box, ", ", barrier);
  text_.Line(op, ".multicast::cluster ", own, ", ", box, ", ", barrier, ", ", i.imm[0]);
}

void PtxPrinter::PrintBarrier(ValueId n) {
  const Instruction& i = at(n);
  const Address barrier = AddressOf(i.src[0], i.src[1]);
  switch (i.code) {
    case Code::kMbInit:
      text_.Line("mbarrier.init.shared::cta.b64 ", barrier, ", ", i.imm[0]);
      return text_.Line("fence.mbarrier_init.release.cluster");
    case Code::kMbExpect:
      return text_.Line("mbarrier.arrive.expect_tx.shared::cta.b64 _, ", barrier, ", ", i.imm[0]);
    case Code::kMbArrive:
      if (i.src.size() < 3) return text_.Line("mbarrier.arrive.shared::cta.b64 _, ", barrier);
      // Without a scope: with `.release.cluster`, ptxas puts a fence of the whole GPU into the
      // loop, for writes that no consumer has. It has read the stage by wgmma alone, and has waited
      // for that.
      return text_.Line("mbarrier.arrive.shared::cluster.b64 _, ",
                        Address{ClusterAddress(barrier, i.src[2])});
    default: break;
  }
  // The instruction itself sleeps for a while, and may end early.
  const int again = text_.NewLabel();
  const PtxOperand parity = InRegister(Low(i.src[2], 0)), over = text_.New(Width::kPred);
  text_.PutLabel(again);
  text_.Line("mbarrier.try_wait.parity.shared::cta.b64 ", over, ", ", barrier, ", ", parity);
  text_.JumpUnless(over, again);
}

void PtxPrinter::PrintHopper(ValueId n) {
  const Instruction& i = at(n);
  switch (i.code) {
    case Code::kMbInit:
    case Code::kMbExpect:
    case Code::kMbArrive:
    case Code::kMbWait: return PrintBarrier(n);
    case Code::kBoxLoad:
    case Code::kBoxStore: return BoxCopy(n);
    case Code::kBoxCommit: return text_.Line("cp.async.bulk.commit_group");
    case Code::kBoxWait:
      return text_.Line("cp.async.bulk.wait_group", i.imm[1] != 0 ? ".read " : " ", i.imm[0]);
    case Code::kProxyFence: return text_.Line("fence.proxy.async.shared::cta");
    case Code::kWarpSync: return text_.Line("bar.warp.sync ", -1);
    case Code::kClusterSync:
      text_.Line("barrier.cluster.arrive.release");
      return text_.Line("barrier.cluster.wait.acquire");
    case Code::kWgFence: return text_.Line("wgmma.fence.sync.aligned");
    case Code::kWgmma: return GroupProduct(n);
    case Code::kWgCommit: return text_.Line("wgmma.commit_group.sync.aligned");
    case Code::kWgWait: return text_.Line("wgmma.wait_group.sync.aligned ", i.imm[0]);
    case Code::kWgSync:
      return text_.Line("bar.sync ", group_barrier_, ", ", program::kWarpgroupThreads);
    case Code::kMaxRegisters:
      return text_.Line("setmaxnreg.", i.imm[1] != 0 ? "inc" : "dec", ".sync.aligned.u32 ",
                        i.imm[0]);
    default: OB_CHECK(false && "no such instruction");
  }
}

}  // namespace outboard::render
