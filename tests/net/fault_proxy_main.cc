// The fault proxy for the shell: `fault_proxy --target 127.0.0.1:6667 --delay-ms 50` prints where
// it listens, and what passed when it is interrupted.
#include <signal.h>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "cli/arguments.h"
#include "tests/net/fault_proxy.h"

int main(int argc, char** argv) {
  using outboard::test::FaultProxy;
  using outboard::test::Way;
  std::string listen = "127.0.0.1:0", target;
  double delay_ms = 0, jitter_ms = 0;
  uint64_t rate_up = 0, rate_down = 0, cut_up = 0, cut_down = 0, seed = 1;
  outboard::cli::Arguments app("fault_proxy",
                               "Stands between a client and a server, and does to them what "
                               "networks do");
  app.Add("--target", &target, "HOST:PORT or unix:/path to connect to").Required();
  app.Add("--listen", &listen, "HOST:PORT or unix:/path to listen at; port 0: any");
  app.Add("--delay-ms", &delay_ms, "Delay each way: half a round trip").NotNegative();
  app.Add("--jitter-ms", &jitter_ms, "Up to so much more").NotNegative();
  app.Add("--rate-up", &rate_up, "Bytes a second to the target; 0: no limit");
  app.Add("--rate-down", &rate_down, "Bytes a second back");
  app.Add("--cut-up", &cut_up, "Cut the first connection that has sent so many bytes");
  app.Add("--cut-down", &cut_down, "Cut the first connection that was answered so many bytes");
  app.Add("--seed", &seed, "Of the jitter");
  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  // Before there is a thread that could be given the signal.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto microseconds = [](double ms) {
    return std::chrono::microseconds(static_cast<int64_t>(ms * 1000));
  };
  try {
    FaultProxy proxy(target, listen, seed);
    proxy.SetShape(Way::kUp, {microseconds(delay_ms), microseconds(jitter_ms), rate_up});
    proxy.SetShape(Way::kDown, {microseconds(delay_ms), microseconds(jitter_ms), rate_down});
    if (cut_up > 0) proxy.CutAfter(Way::kUp, cut_up);
    if (cut_down > 0) proxy.CutAfter(Way::kDown, cut_down);
    std::printf("%s\n", proxy.address().c_str());
    std::fflush(stdout);
    int signal;
    sigwait(&signals, &signal);
    const FaultProxy::Counters all = proxy.counters();
    std::printf("%llu connections, %llu of them cut; %llu bytes up, %llu down\n",
                static_cast<unsigned long long>(all.connections),
                static_cast<unsigned long long>(all.cut),
                static_cast<unsigned long long>(all.bytes_up),
                static_cast<unsigned long long>(all.bytes_down));
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
