#include "tests/bench/flood_figures.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/session/session.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/step.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kStepsFor{6};
constexpr int kSilent = 2'000;
constexpr char kShares[] =
    "2 cores for the gateway, both accounts' workers and the client at one priority; the flooding "
    "client has what they leave";

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// A flooding client, until the end.
class Flood {
 public:
  Flood(const std::string& kind, const Cloud& cloud, const std::string& key) {
    const std::string program = Beside("flood");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(program.c_str(), "flood", kind.c_str(), cloud.target().c_str(), key.c_str(), nullptr);
      _exit(127);
    }
  }
  ~Flood() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  pid_t pid() const { return pid_; }
  bool HasEnded() { return waitpid(pid_, nullptr, WNOHANG) != 0; }

 private:
  pid_t pid_;
};

double ResidentMb(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::vector<double> StepsMs(Session& session) {
  std::vector<double> times;
  for (const Clock::time_point end = Clock::now() + kStepsFor; Clock::now() < end;) {
    const Clock::time_point begin = Clock::now();
    OB_CHECK_OK(test::Step(session));
    times.push_back(1000 * Seconds(Clock::now() - begin));
  }
  return times;
}

session::SessionOptions OptionsOf(const std::string& target, const std::string& key) {
  session::SessionOptions options;
  options.target = target;
  options.key = key;
  return options;
}

// From nothing to the answer of the first step.
double OpenSeconds(const std::string& target, const std::string& key) {
  const Clock::time_point begin = Clock::now();
  const auto session = ValueOrDie(Session::Connect(OptionsOf(target, key)));
  OB_CHECK_OK(test::Step(*session));
  const double taken = Seconds(Clock::now() - begin);
  OB_CHECK_OK(session->Close());
  return taken;
}

void StepsBesideFloods() {
  Cloud cloud(2, {}, {"--quota", "4GiB"});
  const auto session = ValueOrDie(Session::Connect(OptionsOf(cloud.target(), cloud.key())));
  StepsMs(*session);  // everything is there
  const double before_mb = ResidentMb(cloud.pid());
  std::atomic<bool> stop{false};
  std::atomic<double> most_mb{before_mb};
  std::thread sampler([&] {
    while (!stop) {
      most_mb = std::max(most_mb.load(), ResidentMb(cloud.pid()));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  // `spin` floods nobody: what is left of its ratio above 1 is the machine's and not the gateway's.
  for (const std::string kind : {"spin", "graphs", "uploads", "usage", "openings", "all"}) {
    // The machine has other work beside this, which comes and goes.
    const double alone = Quantile(StepsMs(*session), 0.99);
    const Flood flood(kind, cloud, cloud.MakeKey("flooder-" + kind));
    std::this_thread::sleep_for(seconds(1));
    const double gateway_s = cloud.cpu_seconds(), flood_s = ProcessCpuSeconds(flood.pid());
    const std::vector<double> times = StepsMs(*session);
    const std::string spent = absl::StrFormat(
        "processor time of the gateway %.1f s and of the flooding client %.1f s, in %d s",
        cloud.cpu_seconds() - gateway_s, ProcessCpuSeconds(flood.pid()) - flood_s,
        static_cast<int>(kStepsFor.count()));
    const double beside = Quantile(times, 0.99);
    const std::string figure =
        kind == "all" ? "flood_step_p99_ratio" : absl::StrCat("flood_", kind, "_step_p99_ratio");
    Report(figure, beside / alone, "", absl::StrFormat("alone: %.2f ms", alone),
           absl::StrFormat("%.2f ms; p50 %.2f ms; the gateway has %.0f MB more; %s; %s", beside,
                           Quantile(times, 0.5), ResidentMb(cloud.pid()) - before_mb, spent,
                           kShares));
  }
  stop = true;
  sampler.join();
  Report("flood_gateway_growth_mb", most_mb - before_mb, "MB",
         absl::StrFormat("before: %.0f MB", before_mb), "the most during all of these floods");
  OB_CHECK_OK(session->Close());
}

void OpenBesideSilence() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < kSilent + 500)
    return ReportSkipped("open_s_beside_silent", "too few descriptors may be opened here");
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  Cloud cloud(2);
  test::FaultProxy proxy(cloud.target());  // by TCP, as from another machine
  OpenSeconds(proxy.address(), cloud.key());
  const std::string& target = cloud.target();
  const int port = std::stoi(target.substr(target.rfind(':') + 1));
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(port)),
                      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  std::vector<int> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    OB_CHECK(connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  const double taken = OpenSeconds(proxy.address(), cloud.key());
  for (const int fd : silent) close(fd);
  Report("open_s_beside_silent", taken, "s", "",
         absl::StrFormat("connect, open and a first step, beside %d connections that say nothing",
                         kSilent));
}

void OpenBesideResets() {
  Cloud cloud(2);
  const std::string flooder = cloud.MakeKey("flooder");
  OpenSeconds(cloud.target(), cloud.key());
  double most = 0;
  int opened = 0;
  {
    Flood flood("resets", cloud, flooder);
    while (!flood.HasEnded()) {
      most = std::max(most, OpenSeconds(cloud.target(), cloud.key()));
      ++opened;
    }
  }
  if (opened == 0) return ReportSkipped("open_s_beside_resets", "they were over before");
  Report("open_s_beside_resets", most, "s", "",
         absl::StrFormat("the longest of %d, while 20,000 streams are opened and cancelled at once",
                         opened));
}

}  // namespace

void FloodFigures() {
  StepsBesideFloods();
  OpenBesideSilence();
  OpenBesideResets();
}

}  // namespace outboard::bench
