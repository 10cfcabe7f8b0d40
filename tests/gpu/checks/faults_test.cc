// Each planted fault is reported by its kind at its line, and the same kernel without it is not.
//
// A row has a kernel that is right, a replacement that breaks it, and the report that is expected.
#include <algorithm>

#include "tests/gpu/checks/matmul_kernels.h"

namespace outboard::ptx {
namespace {

// Thread i writes shared[i], and reads shared[(i + 1) % 64] after the barrier.
constexpr char kNeighbour[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tiles;
shl.b32 %r3, %r1, 2;
add.s32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
bar.sync 0;
add.s32 %r5, %r1, 1;
and.b32 %r5, %r5, 63;
shl.b32 %r5, %r5, 2;
add.s32 %r6, %r2, %r5;
ld.shared.u32 %r7, [%r6];
cvt.u64.u32 %d2, %r3;
add.s64 %d3, %d1, %d2;
st.global.u32 [%d3], %r7;
)";
constexpr char kTiles[] = ".shared .align 1024 .b8 tiles[2048];";

// As above within one warp.
std::string WarpNeighbour() {
  return absl::StrReplaceAll(kNeighbour,
                             {{"bar.sync 0", "bar.warp.sync -1"}, {"%r5, 63", "%r5, 31"}});
}

// Each thread copies 4 bytes by cp.async and reads its own.
constexpr char kCopyOwn[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tiles;
shl.b32 %r3, %r1, 2;
add.s32 %r4, %r2, %r3;
cvt.u64.u32 %d2, %r3;
add.s64 %d3, %d1, %d2;
cp.async.ca.shared.global [%r4], [%d3], 4;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.u32 %r5, [%r4];
st.global.u32 [%d3], %r5;
)";

// The last of four blocks sums what each block has written: a counter and fences order them.
constexpr char kLastBlock[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %ctaid.x;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
add.s32 %r2, %r1, 10;
st.global.u32 [%d3], %r2;
membar.gl;
atom.global.add.u32 %r3, [%d1+16], 1;
setp.ne.s32 %p1, %r3, 3;
@%p1 bra DONE;
fence.acq_rel.gpu;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d1];
add.s32 %r4, %r4, %r5;
add.s32 %r6, %r6, %r7;
add.s32 %r4, %r4, %r6;
st.global.u32 [%d1+20], %r4;
DONE:
)";

// Each thread writes 4 bytes of shared memory; thread 0 stores them to global memory by the copy
// engine.
constexpr char kBulkStore[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tiles;
shl.b32 %r3, %r1, 2;
add.s32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 256;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
st.shared.u32 [%r4], %r1;
DONE:
)";

// Thread 0 arrives at an mbarrier for which all wait.
constexpr char kMbarrier[] = R"(
mov.u32 %r1, %tid.x;
mov.u32 %r2, tiles;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r2], 1;
READY:
bar.sync 0;
@!%p1 mbarrier.arrive.shared.b64 %d1, [%r2];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
@!%p2 bra WAIT;
)";

constexpr char kShuffle[] = R"(
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 64;
@!%p1 bra DONE;
shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
DONE:
)";

constexpr char kLoop[] = R"(
mov.u32 %r1, 0;
LOOP:
add.s32 %r1, %r1, 1;
setp.lt.s32 %p1, %r1, 100;
@%p1 bra LOOP;
)";

struct Fault {
  const char* name;
  const char* kernel;
  const char* from;  // is replaced by `to`; empty: the kernel as it is
  const char* to;
  const char* kind;
  const char* at;  // in the reported line
};
const Fault kFaults[] = {
    {"MissingBarrier", kNeighbour, "bar.sync 0;", "", "race", "ld.shared.u32 %r7"},
    {"AByteOfAWord", kNeighbour, "bar.sync 0;", "bar.sync 0;\nst.shared.u8 [%r4+1], %r1;", "race",
     "ld.shared.u32 %r7"},
    {"TwoThreadsWriteOneWord", kNeighbour, "add.s64 %d3, %d1, %d2;", "mov.u64 %d3, %d1;", "race",
     "st.global.u32 [%d3], %r7"},
    {"SharedNeverWritten", kNeighbour, "st.shared.u32 [%r4], %r1;", "", "never-written",
     "ld.shared.u32 %r7"},
    {"Misaligned", kNeighbour, "add.s32 %r6, %r2, %r5;", "add.s32 %r6, %r2, %r1;", "misaligned",
     "ld.shared.u32 %r7"},
    {"BehindSharedMemory", kNeighbour, "ld.shared.u32 %r7, [%r6];",
     "ld.shared.u32 %r7, [%r6+2048];", "out-of-bounds", "ld.shared"},
    {"BehindAnAllocation", kNeighbour, "st.global.u32 [%d3], %r7;", "st.global.u32 [%d3+4], %r7;",
     "out-of-bounds", "st.global"},
    {"HalfABlockAtABarrier", kLoop, "mov.u32 %r1, 0;",
     "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p2, %r1, 32;\n@%p2 bar.sync 0;", "barrier-missed",
     "bar.sync"},
    {"HalfAWarpAtABarrier", kLoop, "mov.u32 %r1, 0;",
     "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p2, %r1, 40;\n@%p2 bar.sync 0;", "barrier-missed",
     "bar.sync"},
    {"ThreadsLeaveBeforeABarrier", kNeighbour, "bar.sync 0;",
     "setp.lt.u32 %p1, %r1, 5;\n@%p1 exit;\nbar.sync 0;", "barrier-missed", "bar.sync"},
    {"NoWaitForACopy", kCopyOwn, "cp.async.wait_group 0;", "", "in-flight", "ld.shared.u32 %r5"},
    {"OneGroupTooFew", kCopyOwn, "cp.async.wait_group 0;", "cp.async.wait_group 1;", "in-flight",
     "ld.shared.u32 %r5"},
    {"NoFenceBeforeACounter", kLastBlock, "membar.gl;", "", "race", "ld.global.v4"},
    {"NoFenceAfterACounter", kLastBlock, "fence.acq_rel.gpu;", "", "race", "ld.global.v4"},
    {"BlocksWriteOneWord", kLastBlock, "st.global.u32 [%d3], %r2;",
     "st.global.u32 [%d3], %r2;\nst.global.u32 [%d1+20], %r2;", "race", "st.global.u32 [%d1+20]"},
    {"MissingProxyFence", kBulkStore, "fence.proxy.async.shared::cta;", "", "proxy-fence",
     "cp.async.bulk.global"},
    {"OverwrittenDuringAStore", kBulkStore, "cp.async.bulk.wait_group 0;", "", "race",
     "st.shared.u32"},
    {"BlockLeavesDuringAStore", kBulkStore,
     "cp.async.bulk.wait_group 0;\nst.shared.u32 [%r4], %r1;", "", "in-flight", ""},
    {"NobodyArrives", kMbarrier, "@!%p1 mbarrier.arrive.shared.b64 %d1, [%r2];", "", "endless-wait",
     "try_wait"},
    {"PollsForever", kMbarrier,
     "@!%p1 mbarrier.arrive.shared.b64 %d1, [%r2];\nWAIT:\nmbarrier.try_wait",
     "WAIT:\nmbarrier.test_wait", "endless-wait", ""},
    {"MbarrierBeforeItsInitialisation", kMbarrier, "bar.sync 0;", "", "race", "mbarrier"},
    {"MoreArrivalsThanExpected", kMbarrier, "@!%p1 mbarrier.arrive", "mbarrier.arrive",
     "endless-wait", "try_wait"},
    {"LanesMissAtAShuffle", kShuffle, "%r1, 64;", "%r1, 40;", "divergence", "shfl.sync"},
    {"LaneNotInItsMask", kShuffle, "31, -1;", "31, 255;", "misuse", "shfl.sync"},
};

// As it starts before the launch is done whose results it reads.
constexpr char kDependent[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
griddepcontrol.wait;
griddepcontrol.launch_dependents;
ld.global.u32 %r2, [%d3];
add.s32 %r2, %r2, 1;
st.global.u32 [%d3], %r2;
)";
// Thread 0's warp waits for all.
constexpr char kOneWaits[] = R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra READY;
griddepcontrol.wait;
READY:
bar.sync 0;
ld.global.u32 %r2, [%d3];
add.s32 %r2, %r2, 1;
st.global.u32 [%d3], %r2;
)";

struct DependentFault {
  const char* name;
  const char* kernel;
  const char* from;
  const char* to;
  const char* at;  // in the text of the report
};
const DependentFault kDependentFaults[] = {
    {"NoWait", kDependent, "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;", "",
     "ld.global.u32"},
    {"AReadBeforeTheWait", kDependent, "griddepcontrol.wait;",
     "ld.global.u32 %r3, [%d3];\ngriddepcontrol.wait;", "ld.global.u32 %r3"},
    {"AWriteBeforeTheWait", kDependent, "griddepcontrol.wait;",
     "st.global.u32 [%d3], %r1;\ngriddepcontrol.wait;", "st.global.u32 [%d3], %r1"},
    {"SomeThreadsDoNotWait", kDependent, "griddepcontrol.wait;",
     "setp.lt.u32 %p1, %r1, 7;\n@%p1 griddepcontrol.wait;", "ld.global.u32"},
    {"LaunchingDependentsIsNoWait", kDependent, "griddepcontrol.wait;\n", "", "ld.global.u32"},
    {"NobodyWaits", kDependent,
     "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nld.global.u32 %r2, [%d3];\nadd.s32 "
     "%r2, %r2, 1;\nst.global.u32 [%d3], %r2;",
     "", "ret"},
    {"NoBarrierWithTheOneThatWaits", kOneWaits, "bar.sync 0;", "", "ld.global.u32"},
    {"HalfOfTheWarpThatWaits", kOneWaits, "%r1, 32;", "%r1, 16;", "ld.global.u32"},
};

Bench DependentRun(const std::string& text, bool dependent) {
  Bench bench(text);
  bench.Argument(bench.Put(std::vector<uint32_t>(64)));
  bench.config.dependent = dependent;
  const absl::Status status = bench.Launch(1, 64);
  EXPECT_EQ(status.ok(), bench.machine.reports().empty()) << status;
  return bench;
}

std::string TextOf(const char* kernel) { return KernelText({".u64"}, kernel, kTiles); }

Bench RunOf(const std::string& text) {
  Bench bench(text);
  std::vector<uint32_t> values(64);
  // A counter and a result at 16 and 20, for kLastBlock.
  for (uint32_t i = 0; i < 64; ++i) values[i] = text.find("atom.") == std::string::npos ? i : 0;
  bench.Argument(bench.Put(values));
  const bool blocks = text.find("%ctaid") != std::string::npos;
  const absl::Status status = bench.Launch(blocks ? 4 : 1, blocks ? 1 : 64);
  EXPECT_EQ(status.ok(), bench.machine.reports().empty()) << status;
  return bench;
}

TEST(Faults, KernelsWithoutAFault_HaveNoReport) {
  for (const char* kernel :
       {kNeighbour, kCopyOwn, kLastBlock, kBulkStore, kMbarrier, kShuffle, kLoop}) {
    Bench bench = RunOf(TextOf(kernel));
    EXPECT_EQ(bench.Kinds(), "") << kernel << bench.machine.reports()[0].ToString();
  }
  Bench bench(TextOf(WarpNeighbour().c_str()));
  bench.Argument(bench.Put(std::vector<uint32_t>(32)));
  EXPECT_TRUE(bench.Launch(1, 32).ok());
  EXPECT_EQ(bench.Take<uint32_t>(DeviceMemory::kBase, 1)[0], 1u);
}

TEST(Faults, EachIsFoundAtItsLine) {
  RecordFaults(std::size(kFaults), 0);
  size_t found = 0;
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    const std::string text = absl::StrReplaceAll(TextOf(fault.kernel), {{fault.from, fault.to}});
    ASSERT_NE(text, TextOf(fault.kernel)) << fault.name;
    Bench bench = RunOf(text);
    ASSERT_EQ(bench.Kinds(), fault.kind) << fault.name;
    const Report& report = bench.machine.reports()[0];
    EXPECT_NE(report.text.find(fault.at), std::string::npos)
        << fault.name << ": " << report.ToString();
    EXPECT_EQ(report.kernel, "k");
    EXPECT_GT(report.line, 0);
    EXPECT_GE(report.thread, 0);
    ++found;
  }
  RecordFaults(std::size(kFaults), found);
}

// Where a report names them: bytes of an array or of shared memory, from its start; and of a race
// or of a copy, who the other one is.
TEST(Faults, AReportSaysWhere_AndWhoElse) {
  const auto report_of = [](const char* name) {
    const auto fault = std::find_if(std::begin(kFaults), std::end(kFaults),
                                    [&](const Fault& f) { return f.name == std::string(name); });
    Bench bench = RunOf(absl::StrReplaceAll(TextOf(fault->kernel), {{fault->from, fault->to}}));
    return bench.machine.reports().empty() ? Report{} : bench.machine.reports()[0];
  };
  const auto in_array = [](const Report& report) {
    EXPECT_EQ(report.space, Space::kGlobal) << report.ToString();
    return static_cast<int64_t>(report.address - DeviceMemory::kBase);
  };
  const auto in_shared = [](const Report& report) {
    EXPECT_EQ(report.space, Space::kShared) << report.ToString();
    return static_cast<int64_t>(report.address % 1024);  // as `tiles` is aligned
  };
  Report report = report_of("MissingBarrier");
  EXPECT_EQ(report.other_thread, (report.thread + 1) % 64) << report.ToString();
  EXPECT_EQ(report.other_block, 0) << report.ToString();
  EXPECT_EQ(in_shared(report), 4 * report.other_thread) << report.ToString();
  report = report_of("TwoThreadsWriteOneWord");
  EXPECT_EQ(in_array(report), 0) << report.ToString();
  EXPECT_NE(report.thread, report.other_thread) << report.ToString();
  EXPECT_GE(report.other_thread, 0) << report.ToString();
  report = report_of("BlocksWriteOneWord");
  EXPECT_EQ(in_array(report), 20) << report.ToString();
  EXPECT_NE(report.block, report.other_block) << report.ToString();
  EXPECT_GE(report.other_block, 0) << report.ToString();
  EXPECT_EQ(report.other_thread, 0) << report.ToString();
  report = report_of("SharedNeverWritten");
  EXPECT_EQ(in_shared(report), 4 * ((report.thread + 1) % 64)) << report.ToString();
  EXPECT_EQ(report.other_thread, -1) << report.ToString();
  report = report_of("BehindAnAllocation");
  EXPECT_EQ(in_array(report), 256) << report.ToString();
  EXPECT_EQ(report.thread, 63) << report.ToString();
  report = report_of("Misaligned");
  EXPECT_EQ(in_shared(report), report.thread) << report.ToString();
  EXPECT_NE(report.thread % 4, 0) << report.ToString();
  report = report_of("NoWaitForACopy");
  EXPECT_EQ(in_shared(report), 4 * report.thread) << report.ToString();
  // The copy engine is a thread behind all others.
  report = report_of("OverwrittenDuringAStore");
  EXPECT_GE(report.other_thread, 1024) << report.ToString();
  EXPECT_EQ(in_shared(report), 4 * report.thread) << report.ToString();
}

// Results that follow from who was last, though the counter is the same in the end.
TEST(Faults, RunsThatDiffer_AreReportedBesideIntegerAtomics) {
  const auto kinds = [](const char* from, const char* to) {
    const std::string text = absl::StrReplaceAll(TextOf(kLastBlock), {{from, to}});
    EXPECT_NE(text, TextOf(kLastBlock));
    return RunOf(text).Kinds();
  };
  EXPECT_EQ(kinds("[%d1+20], %r4;", "[%d1+20], %r1;"), "differs");
  EXPECT_EQ(kinds("[%d1+20], %r4;", "[%d1+20], %r3;"), "");
  // Floats have no such promise: sums depend on their order.
  EXPECT_EQ(kinds("[%d1+20], %r4;",
                  "[%d1+20], %r1;\nred.global.add.f32 [%d1+24], 0f3f800000;"),
            "");
}

TEST(Faults, LanesOfAWarp_NeedABarrierToo) {
  Bench bench(TextOf(absl::StrReplaceAll(WarpNeighbour(), {{"bar.warp.sync -1;", ""}}).c_str()));
  bench.Argument(bench.Put(std::vector<uint32_t>(32)));
  EXPECT_FALSE(bench.Launch(1, 32).ok());
  EXPECT_EQ(bench.Kinds(), "race");
}

TEST(Faults, MemoryThatNobodyWrote_IsNotRead) {
  for (const char* kernel : {kCopyOwn, kLastBlock}) {
    Bench bench(TextOf(kernel));
    bench.Argument(bench.memory.Allocate(256));
    EXPECT_FALSE(bench.Launch(1, 1).ok());
    EXPECT_EQ(bench.Kinds(), "never-written") << kernel;
  }
}

TEST(Faults, FreedMemory_BelongsToNobody) {
  Bench bench(TextOf(kNeighbour));
  const uint64_t address = bench.Put(std::vector<uint32_t>(64));
  bench.memory.Free(address);
  bench.Argument(address);
  EXPECT_FALSE(bench.Launch(1, 64).ok());
  EXPECT_EQ(bench.Kinds(), "out-of-bounds");
}

TEST(Faults, KernelThatDoesNotEnd_HasABudget) {
  MachineOptions options;
  options.warp_instructions_max = 10000;
  Bench bench(absl::StrReplaceAll(TextOf(kLoop), {{"@%p1 bra", "bra"}}), options);
  bench.Argument(uint64_t{0});
  EXPECT_EQ(bench.Launch(1, 32).code(), absl::StatusCode::kDeadlineExceeded);
}

// ---- in launches that start early

TEST(Faults, EachIsFoundInDependentLaunches) {
  size_t found = 0;
  for (const char* const kernel : {kDependent, kOneWaits})
    EXPECT_EQ(DependentRun(TextOf(kernel), true).Kinds(), "");
  for (const DependentFault& fault : kDependentFaults) {
    SCOPED_TRACE(fault.name);
    const std::string text = absl::StrReplaceAll(TextOf(fault.kernel), {{fault.from, fault.to}});
    ASSERT_NE(text, TextOf(fault.kernel));
    const Bench bench = DependentRun(text, true);
    ASSERT_EQ(bench.Kinds(), "dependency");
    EXPECT_NE(bench.machine.reports()[0].text.find(fault.at), std::string::npos)
        << bench.machine.reports()[0].ToString();
    ++found;
    // A launch that starts when all before it is done need not wait.
    EXPECT_EQ(DependentRun(text, false).Kinds(), "");
  }
  RecordFaults(std::size(kDependentFaults), found);
}

// A launch may ask for memory before it waits, for all that others do to it; but for memory that is
// there, in whole pieces.
TEST(Faults, PrefetchesBeforeTheWait_AreOfBuffers) {
  struct {
    const char *what, *kind;
  } const prefetches[] = {{"[%d1], 256", ""},
                          {"[%d1+240], 16", ""},
                          {"[%d1], 272", "out-of-bounds"},
                          {"[%d1-16], 16", "out-of-bounds"},
                          {"[%d1], 40", "misuse"},
                          {"[%d1], 0", "misuse"},
                          {"[%d1+8], 16", "misaligned"}};
  for (const auto& prefetch : prefetches) {
    const std::string wait = "griddepcontrol.wait;";
    const std::string text = absl::StrReplaceAll(
        TextOf(kDependent), {{wait, absl::StrCat("cp.async.bulk.prefetch.L2.global ",
                                                 prefetch.what, ";\n", wait)}});
    for (const bool dependent : {false, true})
      EXPECT_EQ(DependentRun(text, dependent).Kinds(), prefetch.kind) << prefetch.what;
  }
}

// ---- in matrix products

struct ProductFault {
  const char* name;
  const char* from;
  const char* to;
  const char* kind;
};
const ProductFault kMmaFaults[] = {
    {"NoBarrierAfterTheCopy", "cp.async.wait_group 1;\nbar.sync 0;", "cp.async.wait_group 1;",
     "race"},
    {"NoBarrierBeforeTheNextCopy", "bar.sync 0;\nxor.b32 %r22", "xor.b32 %r22", "race"},
    {"OneGroupTooFew", "cp.async.wait_group 1;", "cp.async.wait_group 2;", "in-flight"},
    {"NoCommit", "NOCOPY:\ncp.async.commit_group;", "NOCOPY:", "in-flight"},
};
const ProductFault kWgmmaFaults[] = {
    {"NoWaitForTheCopy", "@!%p6 bra FULL;", "", "in-flight"},
    {"NoWaitForTheConsumer", "@!%p3 bra EMPTY;", "", "in-flight misuse"},
    {"TooFewBytesExpected", "_, [%r14], 16384;", "_, [%r14], 8192;", "in-flight"},
    {"TooManyBytesExpected", "_, [%r14], 16384;", "_, [%r14], 16385;", "endless-wait"},
    {"NoWaitForTheProduct", "wgmma.wait_group.sync.aligned 0;", "", "accumulator in-flight"},
    {"OneGroupTooFew", "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;",
     "accumulator in-flight"},
    {"NoFenceBeforeTheProduct", "wgmma.fence.sync.aligned;", "", "accumulator"},
    {"NoFenceOfTheMbarriers", "fence.mbarrier_init.release.cluster;", "", "proxy-fence"},
    {"NobodyReleasesTheStage", "mbarrier.arrive.shared::cta.b64 _, [%r14+16];", "", "endless-wait"},
    {"CopyToAMisalignedStage", "add.s32 %r17, %r16, 8192;", "add.s32 %r17, %r16, 8208;",
     "misaligned"},
};

// What a fault breaks first depends on who is ahead: the report has to be one of these.
bool IsOneOf(const std::string& kind, const std::string& kinds) {
  return kinds.find(kind) != std::string::npos && !kind.empty();
}

TEST(Faults, EachIsFoundInMma) {
  size_t found = 0;
  for (const ProductFault& fault : kMmaFaults) {
    const std::string text = absl::StrReplaceAll(MmaKernel(), {{fault.from, fault.to}});
    ASSERT_NE(text, MmaKernel()) << fault.name;
    MmaRun run(text);
    EXPECT_TRUE(IsOneOf(run.bench.Kinds(), fault.kind)) << fault.name << ": " << run.status;
    found += IsOneOf(run.bench.Kinds(), fault.kind) ? 1 : 0;
  }
  RecordFaults(std::size(kMmaFaults), found);
}
TEST(Faults, EachIsFoundInWgmma) {
  size_t found = 0;
  for (const ProductFault& fault : kWgmmaFaults) {
    const std::string text = absl::StrReplaceAll(WgmmaKernel(), {{fault.from, fault.to}});
    ASSERT_NE(text, WgmmaKernel()) << fault.name;
    WgmmaRun run(text);
    EXPECT_TRUE(IsOneOf(run.bench.Kinds(), fault.kind)) << fault.name << ": " << run.status;
    found += IsOneOf(run.bench.Kinds(), fault.kind) ? 1 : 0;
  }
  RecordFaults(std::size(kWgmmaFaults), found);
}

}  // namespace
}  // namespace outboard::ptx
