// Trainings on GPUs that fail in their middle, after a snapshot: a session that goes on has the
// losses, the weights and the optimiser's state of one that nothing happened to, to the last bit;
// on a GPU of another class it is told that they may differ. The GPUs are the tests' driver's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/nn/optim.h"
#include "client/session/current_session.h"
#include "tests/e2e/gpu_cluster.h"
#include "tests/support/documented.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Eventually;

// Attention between the rows of a product with a long sum, which few blocks would compute alone:
// its sum is divided and joined. Adam's moments and the number of its steps are state, too.
class SmallAttention {
 public:
  SmallAttention() {
    Tensor::manual_seed(5);
    inputs_ = Tensor::uniform({kRows, kSteps}, -1, 1).realize();
    wanted_ = Tensor::uniform({kRows, kResults}, -1, 1).realize();
    into_ = Tensor::uniform({kSteps, kWidth}, -0.05, 0.05).realize().requires_grad_();
    out_of_ = Tensor::uniform({kWidth, kResults}, -0.5, 0.5).realize().requires_grad_();
    adam_ = std::make_unique<optim::Adam>(std::vector<Tensor>{into_, out_of_}, 0.01);
  }

  float Step() {
    const TrainingMode training(true);
    const Tensor rows = inputs_.matmul(into_);
    const Tensor seen = (rows.matmul(rows.transpose()) * 0.25).softmax().matmul(rows);
    const Tensor off = seen.matmul(out_of_) - wanted_;
    const Tensor loss = (off * off).sum(1).mean();
    loss.backward();
    adam_->step({loss});
    return loss.item();
  }

  // Weights, moments and the optimiser's other numbers, as bytes.
  std::vector<std::string> State() const {
    std::vector<Tensor> all = {into_, out_of_};
    for (const Tensor& tensor : adam_->state()) all.push_back(tensor);
    std::vector<std::string> bytes;
    for (const TensorFuture& value : fetch(all)) bytes.push_back(value.to_host().bytes);
    return bytes;
  }

 private:
  static constexpr int64_t kRows = 16, kSteps = 2048, kWidth = 16, kResults = 8;
  Tensor inputs_, wanted_, into_, out_of_;
  std::unique_ptr<optim::Adam> adam_;
};

// Of a Run that comes in the middle: no kernel of the training has so many parameters.
constexpr int kPoisonInputs = 12;
constexpr int kStepsBefore = 4, kStepsAfter = 6;  // the snapshots that are waited for

struct Trained {
  std::vector<float> losses;
  std::vector<std::string> middle, end;  // the state, after the snapshots and in the end
  std::string told;                      // what the client was told, a line each
  absl::Status of_poison;                // of the Run between the two
  size_t kernels_before = 0;             // that Run, of the process that has run most
};

// How many kernels each process has run by the driver's notes, and what became of it.
struct Notes {
  std::map<int, size_t> kernels;
  std::map<int, std::string> faults;  // "ecc parameters 3"

  static Notes Of(const std::string& file) {
    Notes notes;
    std::istringstream lines(test::ReadFile(file));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int process = 0;
      std::string what, name;
      words >> process >> what >> name;
      if (what == "kernel" && name != "outboard_scrub") ++notes.kernels[process];
      if (what == "fault") notes.faults[process] = line.substr(line.find(name));
    }
    return notes;
  }
  // Of the process that has run most.
  size_t MostKernels() const {
    size_t most = 0;
    for (const auto& [process, count] : kernels) most = std::max(most, count);
    return most;
  }
};

class GpuSurvive : public test::GpuCluster {
 protected:
  // What an undisturbed training is like: computed once.
  struct Undisturbed {
    Trained trained;
    size_t kernels_before = 0, kernels = 0;  // of its process, before the Run between and at all
  };
  static const Undisturbed& Expected() {
    static const auto* const expected = new Undisturbed(TrainUndisturbed());
    return *expected;
  }

  void TearDown() override { SetSession(nullptr); }

  void StartUpNoting(int devices, std::vector<std::string> variables,
                     const std::vector<std::string>& environment = {}) {
    variables.push_back("OUTBOARD_FAKE_CUDA_NOTES=" + notes());
    std::vector<std::string> all = Driver(devices, variables);
    all.insert(all.end(), environment.begin(), environment.end());
    StartUp(std::move(all));
  }
  std::string notes() const { return folder_ / "notes"; }
  std::string Metrics() { return test::Get(cluster_.last_metrics(), "/metrics"); }
  // Those of the worker, which says in the log that it shares with the gateway where they are.
  std::string WorkersMetrics() {
    const std::string log = Log(), word = "event=metrics_served address=";
    const size_t at = log.rfind(word) + word.size();
    return test::Get(log.substr(at, log.find('\n', at) - at), "/metrics");
  }
  int Snapshots() {
    const std::string page = Metrics(), name = "\noutboard_snapshots_total ";
    const size_t at = page.find(name);
    return at == std::string::npos ? 0 : std::atoi(page.c_str() + at + name.size());
  }

  // A session of its own trains; a Run that has nothing to do with the training comes in its
  // middle, behind snapshots that hold what there was before.
  Trained Train() {
    Trained trained;
    session::SessionOptions options = cluster_.Options();
    options.tell = [&](const std::string& line) { trained.told += line + "\n"; };
    absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("");
    EXPECT_TRUE(Eventually([&] { return (session = Session::Connect(options)).ok(); }))
        << session.status();
    if (!session.ok()) return trained;
    SetSession(*std::move(session));
    try {
      SmallAttention training;
      for (int step = 0; step < kStepsBefore; ++step) trained.losses.push_back(training.Step());
      // The second one begins when the first one is stored, so it holds the step before it.
      for (int taken = 0; taken < 2; ++taken) {
        const int before = Snapshots();
        trained.losses.push_back(training.Step());
        EXPECT_TRUE(Eventually([&] { return Snapshots() > before; })) << Log();
      }
      trained.kernels_before = Notes::Of(notes()).MostKernels();
      trained.of_poison = RunPoison();
      trained.middle = training.State();
      for (int step = 0; step < kStepsAfter; ++step) trained.losses.push_back(training.Step());
      trained.end = training.State();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << Log();
    }
    EXPECT_TRUE(CloseSession().ok());
    SetSession(nullptr);
    return trained;
  }

  static void ExpectSame(const Trained& got, const Trained& wanted) {
    EXPECT_EQ(got.losses, wanted.losses);
    EXPECT_TRUE(got.middle == wanted.middle) << "the state in the middle differs";
    EXPECT_TRUE(got.end == wanted.end) << "the state in the end differs";
    EXPECT_FALSE(wanted.end.empty());
  }
  // One process had the fault, and another one went on from a snapshot.
  void ExpectOneFault(const std::string& fault) {
    const Notes all = Notes::Of(notes());
    ASSERT_EQ(all.faults.size(), 1u);
    const auto& [process, what] = *all.faults.begin();
    EXPECT_EQ(what.find(fault + " parameters "), 0u) << what;
    EXPECT_GT(all.kernels.at(process), Expected().kernels_before);
    EXPECT_LT(all.kernels.at(process), Expected().kernels);
    size_t others = 0;
    for (const auto& [other, kernels] : all.kernels) {
      if (other == process) continue;
      ++others;
      EXPECT_LT(kernels, Expected().kernels) << "it began at the beginning";
    }
    EXPECT_EQ(others, 1u);
  }
  // A kernel behind the snapshots, and before the last step: the driver counts the one that wipes
  // the GPU, too.
  static std::string InTheMiddle(const std::string& fault) {
    const Undisturbed& whole = Expected();
    return "OUTBOARD_FAKE_CUDA_FAULTS=" + fault + ":" +
           std::to_string(1 + (whole.kernels_before + whole.kernels) / 2);
  }

 private:
  static Undisturbed TrainUndisturbed();

  // The sum of as many arrays.
  static absl::Status RunPoison() {
    Session& session = *SessionIfConnected();
    Graph g;
    const std::vector<float> ones(35, 1);
    const int64_t dims[] = {5, 7};
    std::vector<uint64_t> inputs;
    const UOp* sum = nullptr;
    for (int i = 0; i < kPoisonInputs; ++i) {
      inputs.push_back(session.NewHandle());
      OB_RETURN_IF_ERROR(
          session.Put(inputs.back(), DType::kF32, dims,
                      {reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)}));
      const UOp* const x = Param(g, i, DType::kF32, {Dim(5), Dim(7)});
      sum = sum == nullptr ? x : Add(g, sum, x);
    }
    const uint64_t output = session.NewHandle();
    OB_ASSIGN_OR_RETURN(const uint64_t seq,
                        session.Run(test::RequestOf(Sink(g, {sum}), inputs, {output}, true)));
    const absl::Status status = session.Await(seq, 0).status();
    for (const uint64_t input : inputs) session.Release(input);
    session.Release(output);
    return status;
  }
};

GpuSurvive::Undisturbed GpuSurvive::TrainUndisturbed() {
  class Alone : public GpuSurvive {
   public:
    void TestBody() override {}
    Undisturbed Run() {
      StartUpNoting(1, {});
      Undisturbed whole;
      whole.trained = Train();
      whole.kernels_before = whole.trained.kernels_before;
      whole.kernels = Notes::Of(notes()).MostKernels();
      EXPECT_LT(0u, whole.kernels_before);
      EXPECT_LT(whole.kernels_before + 1, whole.kernels);
      return whole;
    }
  };
  return Alone().Run();
}

// ---- a fault in the middle, on one of two GPUs -------------------------------------------------

struct Fault {
  const char* name;  // of the test
  const char* fault;
  const char* word;  // in the worker's log
  const char* how;   // the metric's
};
constexpr Fault kFaults[] = {
    {"IllegalAddress", "sticky", "CUDA_ERROR_ILLEGAL_ADDRESS", "device_failed"},
    {"Trap", "trap", "CUDA_ERROR_LAUNCH_FAILED", "device_failed"},
    {"LaunchTimeout", "timeout", "CUDA_ERROR_LAUNCH_TIMEOUT", "device_failed"},
    {"DeviceThatIsGone", "gone", "CUDA_ERROR_DEVICE_UNAVAILABLE", "device_failed"},
    {"EndlessKernel", "endless", "was not done after 10.0 s", "launch_too_long"},
};

class GpuSurviveFault : public GpuSurvive, public ::testing::WithParamInterface<Fault> {};
INSTANTIATE_TEST_SUITE_P(Faults, GpuSurviveFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GpuSurviveFault, InTheMiddle_LeavesTheBitsOfAnUndisturbedTraining) {
  const Fault& fault = GetParam();
  StartUpNoting(2, {InTheMiddle(fault.fault), "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"},
                {"OUTBOARD_LAUNCH_SECONDS=10"});
  const Trained got = Train();
  ExpectSame(got, Expected().trained);
  EXPECT_TRUE(got.of_poison.ok()) << got.of_poison;
  ExpectOneFault(fault.fault);
  EXPECT_TRUE(Contains(Log(), "event=device_failed device=0") && Contains(Log(), fault.word))
      << Log();
  EXPECT_TRUE(Contains(WorkersMetrics(), std::string("outboard_executors_ended_total{how=\"") +
                                             fault.how + "\"} 1"))
      << WorkersMetrics();
  EXPECT_TRUE(Contains(Metrics(), "outboard_devices{state=\"out_of_service\"} 0")) << Metrics();
  test::ExpectAsDocumented("A worker or an executor is lost, and the gateway takes snapshots",
                           got.told);
  EXPECT_FALSE(Contains(got.told, "another kind of device")) << got.told;
}

// Where there is no other GPU, another process of the same one goes on.
TEST_F(GpuSurvive, AFaultInTheMiddleOfTheOnlyGpu_LeavesTheBitsOfAnUndisturbedTraining) {
  StartUpNoting(1, {InTheMiddle("sticky")});
  ExpectSame(Train(), Expected().trained);
  ExpectOneFault("sticky");
}

// The session leaves the GPU that is out of service; the next one has the other GPU, too.
TEST_F(GpuSurvive, AnEccErrorInTheMiddle_LeavesTheBitsOfAnUndisturbedTraining) {
  StartUpNoting(2, {InTheMiddle("ecc"), "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"});
  const Trained got = Train();
  ExpectSame(got, Expected().trained);
  ExpectOneFault("ecc");
  EXPECT_TRUE(Contains(Log(), "event=device_out_of_service device=0")) << Log();
  EXPECT_TRUE(Contains(Metrics(), "outboard_devices{state=\"out_of_service\"} 1")) << Metrics();
  ExpectSame(Train(), Expected().trained);
}

// ---- what fails again in the replay ------------------------------------------------------------

// The Run fails, and what does not depend on it goes on with the values that were there.
TEST_F(GpuSurvive, ARunThatBreaksEveryGpu_FailsAloneAndTheStateComesBack) {
  StartUpNoting(2, {"OUTBOARD_FAKE_CUDA_FAULTS=sticky:-1000000",
                    "OUTBOARD_FAKE_CUDA_FAULT_PARAMETERS=" + std::to_string(kPoisonInputs + 1)});
  const Trained got = Train();
  ExpectSame(got, Expected().trained);
  EXPECT_EQ(got.of_poison.code(), StatusCode::kInternal) << got.of_poison;
  EXPECT_TRUE(Contains(got.of_poison.message(), "CUDA_ERROR_ILLEGAL_ADDRESS")) << got.of_poison;
  const Notes all = Notes::Of(notes());
  EXPECT_EQ(all.faults.size(), 2u) << "once, and once more";
  EXPECT_TRUE(Contains(Log(), "event=device_failed device=0") &&
              Contains(Log(), "event=device_failed device=1"))
      << Log();
  EXPECT_TRUE(
      Contains(WorkersMetrics(), "outboard_executors_ended_total{how=\"device_failed\"} 2"))
      << WorkersMetrics();
}

// ---- another class of device --------------------------------------------------------------------

// The fault strikes on an H100's class, and what is left is an A100's: other kernels, with sums in
// another order.
TEST_F(GpuSurvive, AMoveToAnotherClass_IsToldAndHasTheSameResultsButForTheirLastBits) {
  StartUpNoting(2, {InTheMiddle("sticky"), "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0",
                    "OUTBOARD_FAKE_CUDA_ARCH=90,80"});
  const Trained got = Train();
  const Trained& wanted = Expected().trained;
  ExpectOneFault("sticky");
  test::ExpectAsDocumented("A session moves to another kind of device", got.told);
  EXPECT_TRUE(Contains(got.told, "sm_80") && Contains(got.told, "sm_90")) << got.told;
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    const float bound = i < kStepsBefore + 2 ? 0 : 1e-4F * std::abs(wanted.losses[i]);
    EXPECT_NEAR(got.losses[i], wanted.losses[i], bound) << "step " << i;
  }
}

}  // namespace
}  // namespace outboard
