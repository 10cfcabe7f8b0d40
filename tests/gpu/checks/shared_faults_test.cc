// Planted faults in what warps and blocks share: the registers of a block, and the shared memory of
// a cluster. As in faults_test.cc a row has a kernel that is right, a replacement that breaks it,
// and the report that is expected.
#include <algorithm>

#include "tests/gpu/checks/bench.h"

namespace outboard::ptx {
namespace {

struct Fault {
  const char* name;
  const char* kernel;
  const char* from;  // is replaced by `to`
  const char* to;
  const char* kind;
  const char* at;  // in the reported line
};

// ---- registers

// The first of two warpgroups gives the second what it does not need.
constexpr char kRegisters[] = R"(
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 128;
@%p1 bra GIVES;
setmaxnreg.inc.sync.aligned.u32 200;
bra DONE;
GIVES:
setmaxnreg.dec.sync.aligned.u32 40;
DONE:
)";
// 2 * 128 threads of 120 registers.
constexpr char kEqualShares[] = ".maxnreg 120";
// One warpgroup gives registers twice.
constexpr char kTwice[] = R"(
setmaxnreg.dec.sync.aligned.u32 64;
mov.u32 %r1, %tid.x;
shr.u32 %r1, %r1, 7;
add.u32 %r1, %r1, 1;
bar.sync %r1, 128;
setmaxnreg.dec.sync.aligned.u32 40;
)";

const Fault kRegisterFaults[] = {
    {"MoreThanOthersGave", kRegisters, "u32 200;", "u32 208;", "endless-wait", "setmaxnreg.inc"},
    {"NobodyGives", kRegisters, "setmaxnreg.dec.sync.aligned.u32 40;", "", "endless-wait",
     "setmaxnreg.inc"},
    {"DecRaises", kRegisters, "u32 40;", "u32 128;", "misuse", "setmaxnreg.dec"},
    {"IncLowers", kRegisters, "inc.sync.aligned.u32 200;",
     "inc.sync.aligned.u32 200;\nbar.sync 1, 128;\nsetmaxnreg.inc.sync.aligned.u32 192;", "misuse",
     "setmaxnreg.inc"},
    {"AWarpStaysAway", kRegisters, "GIVES:", "GIVES:\nsetp.ge.u32 %p2, %r1, 96;\n@%p2 bra DONE;",
     "divergence", "ret"},
    {"AWarpRunsAnotherOne", kRegisters, "GIVES:",
     "GIVES:\nsetp.ge.u32 %p2, %r1, 96;\n@%p2 setmaxnreg.dec.sync.aligned.u32 40;\n@%p2 bra DONE;",
     "divergence", "setmaxnreg.dec"},
    {"NoMeetingBeforeTheNext", kTwice, "bar.sync %r1, 128;", "", "misuse", "setmaxnreg.dec"},
    {"NoMultipleOfEight", kRegisters, "u32 200;", "u32 196;", "misuse", "setmaxnreg.inc"},
};

std::string RegistersText(const char* kernel, const char* directives = kEqualShares) {
  return KernelText({}, kernel, "", directives);
}

Bench RegistersRun(const std::string& text) {
  MachineOptions options;
  options.runs = 3;
  Bench bench(text, options);
  const absl::Status status = bench.Launch(1, 256);
  EXPECT_EQ(status.ok(), bench.machine.reports().empty()) << status;
  return bench;
}

void ExpectReport(const Fault& fault, const Bench& bench) {
  ASSERT_EQ(bench.Kinds(), fault.kind)
      << (bench.machine.reports().empty() ? "" : bench.machine.reports()[0].ToString());
  const Report& report = bench.machine.reports()[0];
  EXPECT_NE(report.text.find(fault.at), std::string::npos) << report.ToString();
}

TEST(RegisterFaults, EachIsFoundAtItsLine) {
  RecordFaults(std::size(kRegisterFaults), 0);
  EXPECT_EQ(RegistersRun(RegistersText(kRegisters)).Kinds(), "");
  EXPECT_EQ(RegistersRun(RegistersText(kTwice)).Kinds(), "");
  size_t found = 0;
  for (const Fault& fault : kRegisterFaults) {
    SCOPED_TRACE(fault.name);
    const std::string text =
        absl::StrReplaceAll(RegistersText(fault.kernel), {{fault.from, fault.to}});
    ASSERT_NE(text, RegistersText(fault.kernel));
    ExpectReport(fault, RegistersRun(text));
    if (HasFatalFailure()) return;
    ++found;
  }
  RecordFaults(std::size(kRegisterFaults), found);
}

// What a thread has at entry, by the kernel's directives: 65,536 for all threads of the blocks that
// a multiprocessor is to hold, in steps of 8; no more than the kernel asks for. As `ptxas -v` says.
TEST(Registers, AtEntryAreWhatTheDirectivesLeave) {
  const auto kinds = [](const char* directives, int gives, int takes) {
    return RegistersRun(absl::StrReplaceAll(RegistersText(kRegisters, directives),
                                            {{"u32 40;", absl::StrCat("u32 ", gives, ";")},
                                             {"u32 200;", absl::StrCat("u32 ", takes, ";")}}))
        .Kinds();
  };
  constexpr char kTwoBlocks[] = ".maxntid 256, 1, 1\n.minnctapersm 2";  // 128 registers
  EXPECT_EQ(kinds(kTwoBlocks, 40, 216), "");
  EXPECT_EQ(kinds(kTwoBlocks, 40, 224), "endless-wait");
  EXPECT_EQ(kinds(".reqntid 256, 1, 1\n.minnctapersm 2", 40, 216), "");
  // One block would have 256 of a thread; none gets more than is asked for.
  constexpr char kOneBlock[] = ".maxntid 256, 1, 1\n.minnctapersm 1";
  EXPECT_EQ(kinds(kOneBlock, 40, 232), "");
  EXPECT_EQ(kinds(kOneBlock, 240, 232), "misuse");
  // The assembler "is unable to determine the register count at entry".
  EXPECT_EQ(kinds("", 40, 200), "misuse");
  EXPECT_EQ(kinds(".maxntid 256, 1, 1", 40, 200), "misuse");
}

// ---- clusters

// Each of two blocks reads what the other has written to its own shared memory.
constexpr char kCluster[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %tid.x;
mov.u32 %r3, tiles;
xor.b32 %r4, %r1, 1;
mapa.shared::cluster.u32 %r5, %r3, %r4;
setp.eq.u32 %p1, %r2, 0;
@%p1 st.shared.u32 [%r3], %r1;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
@%p1 ld.shared::cluster.u32 %r6, [%r5];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
@%p1 st.global.u32 [%d3], %r6;
)";

// The first block copies 16 bytes to both.
constexpr char kMulticast[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %tid.x;
mov.u32 %r3, tiles;
mov.u16 %h1, 3;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r3+512], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+512], 16;
READY:
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
setp.ne.u32 %p2, %r1, 0;
or.pred %p3, %p1, %p2;
@%p3 bra WAIT;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
  [%r3], [%d1], 16, [%r3+512], %h1;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3+512], 0;
@!%p4 bra WAIT;
ld.shared.u32 %r6, [%r3];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
@!%p1 st.global.u32 [%d3+16], %r6;
)";

constexpr char kFirstBarrier[] =
    "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;";
constexpr char kLastBarrier[] = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;";

const Fault kClusterFaults[] = {
    {"NoClusterBarrierBeforeTheRead", kCluster, kFirstBarrier, "", "never-written",
     "ld.shared::cluster"},
    {"AnArrivalThatReleasesNothing", kCluster, "arrive.release", "arrive.relaxed", "race",
     "ld.shared::cluster"},
    {"ABlocksOwnBarrierInstead", kCluster, kFirstBarrier, "bar.sync 0;", "never-written",
     "ld.shared::cluster"},
    {"AnotherStillReadsWhenABlockLeaves", kCluster, kLastBarrier, "", "out-of-bounds",
     "ld.shared::cluster"},
    {"ABlockLeavesBeforeTheBarrier", kCluster, "barrier.cluster.arrive.release",
     "setp.eq.u32 %p2, %r1, 1;\n@%p2 exit;\nbarrier.cluster.arrive.release", "barrier-missed",
     "barrier.cluster.wait"},
    {"MulticastToABlockThatHasLeft", kMulticast, "or.pred %p3, %p1, %p2;",
     "or.pred %p3, %p1, %p2;\n@%p2 exit;", "misuse", "cp.async.bulk"},
    {"MulticastToABlockThatIsNone", kMulticast, "mov.u16 %h1, 3;", "mov.u16 %h1, 7;", "misuse",
     "cp.async.bulk"},
    {"MulticastToOneBlockTooFew", kMulticast, "mov.u16 %h1, 3;", "mov.u16 %h1, 1;",
     "barrier-missed endless-wait", "barrier.cluster.wait"},
    {"MulticastBeforeTheOthersMbarrierIsThere", kMulticast, kFirstBarrier, "bar.sync 0;", "misuse",
     "cp.async.bulk"},
};

std::string ClusterText(const char* kernel) {
  return KernelText({".u64"}, kernel, ".shared .align 1024 .b8 tiles[1024];");
}

Bench ClusterRun(const std::string& text, int runs = 3) {
  MachineOptions options;
  options.runs = runs;
  Bench bench(text, options);
  bench.Argument(bench.Put(std::vector<uint32_t>(8)));
  bench.config.cluster = {2, 1, 1};
  const absl::Status status = bench.Launch(2, 32);
  EXPECT_EQ(status.ok(), bench.machine.reports().empty()) << status;
  return bench;
}

TEST(ClusterFaults, EachIsFoundAtItsLine) {
  RecordFaults(std::size(kClusterFaults), 0);
  EXPECT_EQ(ClusterRun(ClusterText(kCluster)).Kinds(), "");
  EXPECT_EQ(ClusterRun(ClusterText(kMulticast)).Kinds(), "");
  size_t found = 0;
  for (const Fault& fault : kClusterFaults) {
    SCOPED_TRACE(fault.name);
    const std::string text =
        absl::StrReplaceAll(ClusterText(fault.kernel), {{fault.from, fault.to}});
    ASSERT_NE(text, ClusterText(fault.kernel));
    ExpectReport(fault, ClusterRun(text));
    if (HasFatalFailure()) return;
    ++found;
  }
  RecordFaults(std::size(kClusterFaults), found);
}

// Whoever is ahead: here each block reads the other's memory before that one can leave, since both
// wait for what the other has read.
TEST(ClusterFaults, ABlockThatLeavesEarlyIsFoundEvenIfTheReadCameFirst) {
  const std::string text = absl::StrReplaceAll(
      ClusterText(kCluster),
      {{kLastBarrier, "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;"}});
  const Bench bench = ClusterRun(text, 1);
  ASSERT_EQ(bench.Kinds(), "race");
  EXPECT_NE(bench.machine.reports()[0].detail.find("the block leaves"), std::string::npos)
      << bench.machine.reports()[0].ToString();
}

}  // namespace
}  // namespace outboard::ptx
