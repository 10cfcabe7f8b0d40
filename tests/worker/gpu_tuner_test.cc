// Searches for Opts on a GPU, whose driver is the tests' own (tests/gpu/driver): its events tell
// what work costs by what it does, so that searches end the same in every run.
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/opt.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/neighbours.h"
#include "gtest/gtest.h"
#include "tests/support/device.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {
namespace {

// Answers as the compiler does, but for what `instead` has an answer to.
class Compilers final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    sources.insert(sources.end(), kernels.begin(), kernels.end());
    std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_.Compile(kernels);
    for (size_t i = 0; instead && i < kernels.size(); ++i)
      if (compiled[i].ok()) instead(kernels[i], *compiled[i]);
    return compiled;
  }
  const Target& target() const override { return compiler_.target(); }

  std::vector<KernelSource> sources;
  std::function<void(const KernelSource& source, CompiledKernel& compiled)> instead;

 private:
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
};

const UOp* Product(Graph& g, DType dtype, int64_t m, int64_t k, int64_t n) {
  const UOp* x = Expand(g, Reshape(g, Param(g, 0, dtype, {m, k}), {m, k, 1}), {m, k, n});
  const UOp* w = Expand(g, Reshape(g, Param(g, 1, dtype, {k, n}), {1, k, n}), {m, k, n});
  if (dtype != DType::kF32) x = Cast(g, x, DType::kF32), w = Cast(g, w, DType::kF32);
  return Sink(g, {Reduce(g, Op::kAdd, Mul(g, x, w), {1})});
}

// The update of three parameters of one shape: one launch.
const UOp* Updates(Graph& g) {
  std::vector<const UOp*> results;
  for (int64_t i = 0; i < 3; ++i) {
    const UOp* const p = Param(g, 2 * i, DType::kF32, {40, 64});
    const UOp* const d = Param(g, 2 * i + 1, DType::kF32, {40, 64});
    results.push_back(Add(g, p, Mul(g, d, d)));
  }
  return Sink(g, results);
}

void UseFakeDriver() {
  setenv("OUTBOARD_DEVICE", "cuda", 1);
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
}

// Runs the graph on inputs of few digits, and returns all results.
std::vector<float> Answer(Engine& engine, const UOp* sink) {
  std::vector<DeviceArrayPtr> inputs;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kParam) continue;
    const auto slot = static_cast<size_t>(ParamOf(node).slot());
    if (inputs.size() <= slot) inputs.resize(slot + 1);
    auto array = ValueOrDie(engine.NewArray(node->dtype, DimsAt(node->shape, {}).value()));
    const int64_t width = ByteWidth(node->dtype);
    std::string bytes(static_cast<size_t>(array->bytes()), '\0');
    for (int64_t i = 0; i * width < array->bytes(); ++i)
      StoreFloat(node->dtype, static_cast<double>((i * 7 + node->int_value()) % 16 - 8) / 8,
                 bytes.data() + i * width);
    test::SetBytes(*array, bytes);
    inputs[slot] = std::move(array);
  }
  std::vector<float> all;
  const auto results = engine.Execute(EncodeGraph(sink)->id, sink, inputs, {});
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return all;
  for (const DeviceArrayPtr& result : *results) {
    const std::vector<float> values = test::FloatsOf(*result);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// On a busy machine too, a search goes to its end.
constexpr double kForeverSeconds = 1e9;

class GpuTuner : public ::testing::Test {
 protected:
  GpuTuner() { UseFakeDriver(); }

  std::unique_ptr<Engine> NewEngine(int beam, KernelCompiler* idle = nullptr,
                                    double search_seconds_max = kForeverSeconds,
                                    bool beam_cold = false) {
    return MakeCompiledEngine(compilers(), test::MakeDevice(1 << 26),
                              {.store = store_.get(),
                               .idle_compiler = idle,
                               .beam = beam,
                               .beam_cold = beam_cold,
                               .search_seconds_max = search_seconds_max});
  }
  Compilers* compilers() {
    if (!compilers_.has_value()) compilers_.emplace();
    return &*compilers_;
  }
  void ExpectRight(const std::vector<float>& got, const UOp* sink) {
    const auto reference = MakeReferenceEngine(test::MakeDevice(1 << 26));
    const std::vector<float> want = Answer(*reference, sink);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-3 * (1 + std::fabs(want[i]))) << i;
  }
  // Of Opts that are the best in the store, and whose code the driver refuses.
  void CheckRefused(const UOp* sink, const std::string& refused);
  Tuning TheOnlyOne() {
    std::vector<Tuning> all = ValueOrDie(store_->List());
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Tuning{} : std::move(all[0]);
  }

  test::TempFolder folder_;
  std::unique_ptr<TuningFile> store_ = ValueOrDie(TuningFile::Open(folder_ / "kernels.db"));
  std::optional<Compilers> compilers_;
};

TEST_F(GpuTuner, BeamOnTheStepsPath_FindsFasterOptsThanTheFirst) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  ExpectRight(Answer(*NewEngine(2), sink), sink);
  const Tuning found = TheOnlyOne();
  EXPECT_EQ(found.width, 2) << "the search did not end by itself";
  EXPECT_EQ(found.key.hardware, compilers()->target().Fingerprint());
  EXPECT_GT(found.trials.size(), 10u);
  ASSERT_NE(found.best(), nullptr);
  EXPECT_LE(found.best()->time_ns, found.trials[0].time_ns);
  // Another process, which does not search.
  compilers()->sources.clear();
  ExpectRight(Answer(*NewEngine(0), sink), sink);
  ASSERT_EQ(compilers()->sources.size(), 1u);
  EXPECT_EQ(compilers()->sources[0].opts, codegen::OptsToString(found.best()->opts));
}

// Bytes that the driver was told to overwrite so far.
uint64_t FilledBytes() {
  using Counter = unsigned long long (*)(const char*);
  return reinterpret_cast<Counter>(
      dlsym(dlopen(test::kFakeCuda, RTLD_NOW | RTLD_NOLOAD), "outboard_fake_cuda_counter"))(
      "filled_bytes");
}

TEST_F(GpuTuner, WithColdCaches_TheCachesAreOverwrittenBeforeEachTimedRun) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  for (const bool cold : {false, true}) {
    ValueOrDie(store_->Remove(""));
    const auto engine = NewEngine(1, nullptr, kForeverSeconds, cold);
    const uint64_t before = FilledBytes();
    ExpectRight(Answer(*engine, sink), sink);
    uint64_t runs = 0;  // at least, that were timed
    for (const search::Trial& trial : TheOnlyOne().trials) runs += trial.works() && trial.exact;
    constexpr uint64_t kBytes = (64 << 20) / 8;  // of the device's memory
    if (cold)
      EXPECT_GE(FilledBytes() - before, runs * kBytes) << runs;
    else
      EXPECT_LT(FilledBytes() - before, kBytes);
    EXPECT_GT(runs, 3u);
  }
}

template <class Function>
Function* OfFakeNvml(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen(test::kFakeNvml, RTLD_NOW), name));
}

TEST_F(GpuTuner, Trials_HaveTheClocksThatTheyWereMadeAt) {
  setenv("OUTBOARD_NVML", test::kFakeNvml, 1);
  OfFakeNvml<void(const char*)>("outboard_fake_nvml_clocks")("1980,1980,1000,1900,1500,1500,1980");
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  const Tuning found = TheOnlyOne();
  int timed = 0, throttled = 0, slower = 0;
  for (const search::Trial& trial : found.trials) {
    if (!trial.works()) continue;
    ++timed;
    EXPECT_EQ(trial.at.power_mw, 402'500);
    EXPECT_EQ(trial.at.celsius, 58);
    EXPECT_GE(trial.at.clock_mhz, 1500) << "the time at 1000 MHz was not taken again";
    throttled += search::IsThrottled(trial.at, 1980);
    slower += trial.at.clock_mhz == 1900;
  }
  EXPECT_EQ(throttled, 1) << "the one that was throttled twice";
  EXPECT_EQ(slower, 1) << "the one whose second time was taken at 1900 MHz";
  EXPECT_EQ(OfFakeNvml<int()>("outboard_fake_nvml_readings")(), timed + 2);
  unsetenv("OUTBOARD_NVML");
}

// The search goes on without clocks, once.
TEST_F(GpuTuner, AManagementLibraryThatDoesNotAnswer_CountsAgainstNoCandidate) {
  setenv("OUTBOARD_NVML", test::kFakeNvml, 1);
  setenv("OUTBOARD_FAKE_NVML_HANGS", "nvmlDeviceGetClockInfo", 1);
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  unsetenv("OUTBOARD_FAKE_NVML_HANGS");
  unsetenv("OUTBOARD_NVML");
  const Tuning found = TheOnlyOne();
  EXPECT_TRUE(found.trials.front().works());
  for (const search::Trial& trial : found.trials) EXPECT_EQ(trial.at.clock_mhz, 0);
}

TEST_F(GpuTuner, WithoutTime_NothingIsSearched) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  ExpectRight(Answer(*NewEngine(2, nullptr, /*search_seconds_max=*/0), sink), sink);
  EXPECT_TRUE(ValueOrDie(store_->List()).empty());
}

// The first trial is what steps were computed with before, and others have other tiles.
TEST_F(GpuTuner, ProductsByMatrixUnits_AreTunedByTheirTiles) {
  Graph g;
  const UOp* const sink = Product(g, DType::kBF16, 64, 64, 64);
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  const Tuning found = TheOnlyOne();
  ASSERT_EQ(found.trials[0].opts.size(), 1u);
  EXPECT_EQ(found.trials[0].opts[0].kind, codegen::OptKind::kMma);
  std::set<int64_t> tiles;
  for (const search::Trial& trial : found.trials)
    if (trial.works() && trial.opts.size() == 1 && trial.opts[0].kind == codegen::OptKind::kMma)
      tiles.insert(trial.opts[0].amount);
  EXPECT_GE(tiles.size(), 4u);
}

TEST_F(GpuTuner, KernelsInSeveralCopies_AreTunedAsTheyRun) {
  Graph g;
  const UOp* const sink = Updates(g);
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  const Tuning found = TheOnlyOne();
  EXPECT_EQ(found.width, 1);
  ASSERT_NE(found.best(), nullptr);
  size_t together = 0, alone = 0;
  for (const KernelSource& source : compilers()->sources) {
    Graph decoded;
    const UOp* const kernel = ValueOrDie(DecodeGraph(decoded, source.encoding, Level::kKernel));
    (CopiesOf(kernel) == 3 ? together : alone) += 1;
  }
  EXPECT_GT(together, 1u);
  EXPECT_EQ(alone, 1u) << "only what compares their results";
}

TEST_F(GpuTuner, ACandidateWithOtherResults_IsStruck) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 24, 40, 32);
  std::string wrong;  // the first list that somebody tries beside the first and the plain one
  std::optional<CompiledKernel> other;
  compilers()->instead = [&](const KernelSource& source, CompiledKernel& compiled) {
    if (!source.opts.has_value() || source.opts->find("UNROLL") == std::string::npos) return;
    if (wrong.empty()) wrong = *source.opts;
    if (*source.opts != wrong) return;
    // Everything is one more than it should be: each register of the first store.
    std::string& text = compiled.object;
    const size_t store = text.find("st.global");
    ASSERT_NE(store, std::string::npos);
    const size_t line = text.rfind('\n', store) + 1;  // before the store's predicate, if it has one
    const size_t values = text.find("], ", store) + 3, end = text.find(';', store);
    ASSERT_LT(values, end) << text.substr(line, 80);
    std::string additions;
    for (const absl::string_view name :
         absl::StrSplit(absl::string_view(text).substr(values, end - values),
                        absl::ByAnyChar("{}, "), absl::SkipEmpty()))
      absl::StrAppend(&additions, "add.rn.f32 ", name, ", ", name, ", 0f3F800000;\n");
    ASSERT_FALSE(additions.empty());
    text.insert(line, additions);
  };
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  ASSERT_FALSE(wrong.empty());
  int tried = 0;
  for (const search::Trial& trial : TheOnlyOne().trials) {
    const std::string opts = codegen::OptsToString(trial.opts);
    EXPECT_EQ(trial.verified, trial.works()) << opts << " was not compared";
    if (opts != wrong) continue;
    ++tried;
    EXPECT_FALSE(trial.works()) << "the wrong one counts as one that works";
  }
  EXPECT_EQ(tried, 1);
}

// Opts that worked when they were measured, and whose code the driver of today does not take.
TEST_F(GpuTuner, TunedOptsThatTheDriverRefuses_AreStruckAndNotTriedAgain) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  ExpectRight(Answer(*NewEngine(1), sink), sink);
  // Plain threads, and a list that is none: each in turn the best that the store knows.
  for (const bool plain : {true, false}) {
    SCOPED_TRACE(plain ? "plain" : "with Opts");
    Tuning known = TheOnlyOne();
    const auto chosen = std::find_if(
        known.trials.begin(), known.trials.end(),
        [&](const search::Trial& trial) { return trial.verified && trial.opts.empty() == plain; });
    ASSERT_NE(chosen, known.trials.end());
    chosen->time_ns = 1;
    chosen->exact = true;
    ASSERT_TRUE(store_->Add(known.key, known.name, *chosen).ok());
    CheckRefused(sink, codegen::OptsToString(chosen->opts));
    if (HasFatalFailure()) return;
  }
}

void GpuTuner::CheckRefused(const UOp* sink, const std::string& refused) {
  const auto trial_of_refused = [&] {
    for (const search::Trial& trial : TheOnlyOne().trials)
      if (codegen::OptsToString(trial.opts) == refused) return trial;
    ADD_FAILURE() << refused << " is not in the store";
    return search::Trial{};
  };
  ASSERT_TRUE(trial_of_refused().works());
  const size_t trials = TheOnlyOne().trials.size();
  int broken = 0;
  compilers()->instead = [&](const KernelSource& source, CompiledKernel& compiled) {
    if (source.opts != refused) return;
    ++broken;
    compiled.object.insert(compiled.object.find("ret;"), "no.such.instruction;\n\t");
  };
  // Another process: they are the best it knows. The compiler's own choice runs in their place.
  compilers()->sources.clear();
  ExpectRight(Answer(*NewEngine(0), sink), sink);
  EXPECT_EQ(broken, 1);
  ASSERT_EQ(compilers()->sources.size(), 2u);
  EXPECT_EQ(compilers()->sources[1].opts, std::nullopt);
  EXPECT_FALSE(trial_of_refused().works());
  EXPECT_FALSE(trial_of_refused().verified);
  EXPECT_EQ(TheOnlyOne().trials.size(), trials) << "in place of what was known of them";
  // And a third one, which does not ask for them.
  compilers()->sources.clear();
  ExpectRight(Answer(*NewEngine(0), sink), sink);
  EXPECT_EQ(broken, 1);
  ASSERT_EQ(compilers()->sources.size(), 1u);
  EXPECT_NE(compilers()->sources[0].opts, refused);
  compilers()->instead = nullptr;
}

// A cluster for which the driver says that the device has no room, as a newer one may: plain loops
// run in its place, and nothing is launched before.
TEST_F(GpuTuner, ClustersThatTheDeviceHasNoRoomFor_AreNotLaunched) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  int of_clusters = 0;
  compilers()->instead = [&](const KernelSource& source, CompiledKernel& compiled) {
    const size_t at = compiled.object.find(".maxntid");
    if (source.opts == "" || at == std::string::npos) return;
    ++of_clusters;
    compiled.object.insert(at, ".explicitcluster\n.reqnctapercluster 1, 1, 1\n");
  };
  const auto fault = reinterpret_cast<int (*)(const char*, int)>(
      dlsym(dlopen(test::kFakeCuda, RTLD_NOW), "outboard_fake_cuda_fault"));
  for (const bool refused : {true, false}) {
    SCOPED_TRACE(refused);
    ASSERT_EQ(fault("clusters", refused ? 1 : 0), 1);
    compilers()->sources.clear();
    of_clusters = 0;
    ExpectRight(Answer(*NewEngine(0), sink), sink);
    EXPECT_EQ(of_clusters, 1);
    ASSERT_EQ(compilers()->sources.size(), refused ? 2u : 1u);
    EXPECT_EQ(compilers()->sources.back().opts,
              refused ? std::optional<std::string>("") : std::nullopt);
  }
  compilers()->instead = nullptr;
}

// A view of a buffer that the driver refuses, as one of another version may: plain loops run in its
// place. At the launch it would be too late for them.
TEST_F(GpuTuner, ViewsThatTheDriverRefuses_AreNotLaunched) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  int with_views = 0;
  compilers()->instead = [&](const KernelSource& source, CompiledKernel& compiled) {
    if (source.opts == "") return;
    ++with_views;
    // Its boxes have rows of 8 bytes; the driver takes multiples of 16.
    compiled.maps.push_back({.slot = 0,
                             .element = MappedTensor::Element::kF32,
                             .dims = {8, 8},
                             .strides = {32},
                             .box = {2, 8}});
  };
  ExpectRight(Answer(*NewEngine(0), sink), sink);
  EXPECT_EQ(with_views, 1);
  ASSERT_EQ(compilers()->sources.size(), 2u);
  EXPECT_EQ(compilers()->sources.back().opts, "");
  compilers()->instead = nullptr;
}

const auto kNobody = [] { return false; };
const auto kSomebody = [] { return true; };

// Small: the search goes to its end, and each candidate runs on an interpreter.
TEST_F(GpuTuner, InIdleTime_TheSessionsOwnDeviceSearches) {
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 8, 16, 8);
  Compilers idle;
  const auto engine = NewEngine(0, &idle);
  ExpectRight(Answer(*engine, sink), sink);
  EXPECT_TRUE(ValueOrDie(store_->List()).empty());
  engine->SearchForBetterKernels(kSomebody);
  EXPECT_TRUE(ValueOrDie(store_->List()).empty());
  // A Run comes after some candidates.
  int asked = 0;
  engine->SearchForBetterKernels([&] { return ++asked > 8; });
  const size_t some = TheOnlyOne().trials.size();
  EXPECT_GT(some, 1u);
  EXPECT_EQ(TheOnlyOne().width, 0);
  engine->SearchForBetterKernels(kNobody);  // goes on
  const Tuning found = TheOnlyOne();
  EXPECT_GT(found.trials.size(), some);
  EXPECT_EQ(found.width, kIdleSearchWidth);
  idle.sources.clear();
  engine->SearchForBetterKernels(kNobody);
  EXPECT_TRUE(idle.sources.empty()) << "searched for twice";
  engine->TakeVersions();
  engine->UseBetterKernels(kNobody);
  const std::vector<KernelVersion> versions = engine->TakeVersions();
  ASSERT_EQ(versions.size(), 1u);
  EXPECT_EQ(versions[0].opts, codegen::OptsToString(found.best()->opts));
  ExpectRight(Answer(*engine, sink), sink);
}

// ---- candidates that end the process ------------------------------------------------------------

// Of every candidate whose Opts have a WARP, the stores go far beyond their buffers.
void BreakStores(const KernelSource& source, CompiledKernel& compiled) {
  if (!source.opts.has_value() || source.opts->find("WARP") == std::string::npos) return;
  const size_t store = compiled.object.find("st.global");
  const size_t open = compiled.object.find('[', store), close = compiled.object.find(']', open);
  compiled.object.replace(open, close - open, "[1099511627776");
}

// What a process does that meets them: it searches until its device is lost. Returns 3 then.
int SearchUntilLost(const std::string& path) {
  UseFakeDriver();
  Compilers compilers;
  compilers.instead = BreakStores;
  const auto store = ValueOrDie(TuningFile::Open(path));
  const auto engine = MakeCompiledEngine(
      &compilers, test::MakeDevice(1 << 26),
      {.store = store.get(), .beam = 1, .search_seconds_max = kForeverSeconds});
  Graph g;
  const UOp* const sink = Product(g, DType::kF32, 24, 40, 32);
  std::vector<DeviceArrayPtr> inputs;
  for (const auto& dims : {std::vector<int64_t>{24, 40}, {40, 32}})
    inputs.push_back(ValueOrDie(engine->NewArray(DType::kF32, dims)));
  const bool ran = engine->Execute(EncodeGraph(sink)->id, sink, inputs, {}).ok();
  return ran ? 0 : engine->device().health().ok() ? 1 : 3;
}

TEST(GpuTunerDeathTest, ACandidateThatEndsTheProcess_IsNotTriedAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const test::TempFolder folder;
  const std::string path = folder / "kernels.db";
  // Each process strikes one of them; at last one comes through.
  int ends = 0;
  for (bool lost = true; lost && ends < 40; ++ends) {
    const std::string program = ::testing::internal::GetArgvs()[0];
    setenv("GPU_TUNER_STORE", path.c_str(), 1);
    const int status =
        std::system((program + " --gtest_filter=GpuTunerDeathTest.DISABLED_Search "
                               "--gtest_also_run_disabled_tests > /dev/null 2>&1")
                        .c_str());
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 1);
    lost = WEXITSTATUS(status) == 3;
  }
  EXPECT_GT(ends, 1);
  EXPECT_LT(ends, 40);
  const auto store = ValueOrDie(TuningFile::Open(path));
  const std::vector<Tuning> all = ValueOrDie(store->List());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].width, 1);
  int struck = 0;
  for (const search::Trial& trial : all[0].trials) {
    const bool has = codegen::OptsToString(trial.opts).find("WARP") != std::string::npos;
    if (!has) continue;
    EXPECT_FALSE(trial.works()) << codegen::OptsToString(trial.opts);
    ++struck;
  }
  EXPECT_GE(struck, 1);
}
// A process that meets a candidate without an end is ended at that candidate's deadline, which is
// far below the bound of a launch. Exits with 4 then.
int SearchUntilStopped(const std::string& path) {
  UseFakeDriver();
  // Two looks of the watchdog, each a sixteenth.
  LaunchWatchdog watchdog(std::chrono::seconds(32), [](const std::string& line) {
    const bool at_its_own = line.find("a candidate of a search, ") != line.npos &&
                            line.find(" was not done after 5.0 s") != line.npos &&
                            line.find("(its own bound, ") != line.npos;
    _exit(at_its_own ? 4 : 5);
  });
  Compilers compilers;
  // The first candidates are compiled together; the compiler's own choice has been timed before.
  compilers.instead = [&, compiled = 0](const KernelSource&, CompiledKernel&) mutable {
    constexpr int kOfTheStart = 4;
    if (++compiled != kOfTheStart + 1) return;
    using Fault = int (*)(const char*, int);
    reinterpret_cast<Fault>(dlsym(dlopen(test::kFakeCuda, RTLD_NOW | RTLD_NOLOAD),
                                  "outboard_fake_cuda_fault"))("endless", 1);
  };
  const auto store = ValueOrDie(TuningFile::Open(path));
  const auto engine = MakeCompiledEngine(&compilers, test::MakeDevice(1 << 26),
                                         {.store = store.get(),
                                          .beam = 1,
                                          .search_seconds_max = kForeverSeconds,
                                          .launch_watch = &watchdog});
  Graph g;
  Answer(*engine, Product(g, DType::kF32, 8, 16, 8));
  return 0;
}

TEST(GpuTunerDeathTest, ACandidateWithoutAnEnd_IsStoppedByTheBestTime) {
  const test::TempFolder folder;
  const std::string path = folder / "kernels.db";
  setenv("GPU_TUNER_ENDLESS", path.c_str(), 1);
  const std::string program = ::testing::internal::GetArgvs()[0];
  const int status = std::system((program + " --gtest_filter=GpuTunerDeathTest.DISABLED_Search "
                                            "--gtest_also_run_disabled_tests > /dev/null 2>&1")
                                     .c_str());
  unsetenv("GPU_TUNER_ENDLESS");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4);
  const auto store = ValueOrDie(TuningFile::Open(path));
  const std::vector<Tuning> all = ValueOrDie(store->List());
  ASSERT_EQ(all.size(), 1u);
  ASSERT_GT(all[0].trials.size(), 1u) << "the first has no other to beat";
  EXPECT_FALSE(all[0].trials.back().works()) << "it would be tried again";
}

TEST(GpuTunerDeathTest, DISABLED_Search) {
  if (const char* const path = std::getenv("GPU_TUNER_ENDLESS")) _exit(SearchUntilStopped(path));

  if (const char* const path = std::getenv("GPU_TUNER_STORE")) _exit(SearchUntilLost(path));
}

}  // namespace
}  // namespace outboard::worker
