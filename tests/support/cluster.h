// Runs the `outboard` program as users do: `up`, or `gateway` and `worker` separately, with a data
// folder of the test's and a key.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/session/session.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/step.h"

namespace outboard::test {

inline std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Runs `outboard` with these arguments until it ends.
inline Ended Outboard(const std::string& args, std::vector<std::string> environment = {}) {
  std::vector<std::string> argv = {test::kOutboardProgram};
  for (std::string& word : Words(args)) argv.push_back(std::move(word));
  return RunToEnd(std::move(argv), std::move(environment));
}

class Cluster {
 public:
  // A server of the cluster's: `args` of `outboard`, started and ready.
  std::unique_ptr<Process> Start(const std::string& args,
                                 std::vector<std::string> environment = {}) {
    const std::string ready = folder_ / ("ready-" + std::to_string(started_++));
    std::vector<std::string> argv = {test::kOutboardProgram};
    for (std::string& word :
         Words(args + " --ready-file " + ready + " --life-fd " + std::to_string(kLifeFd)))
      argv.push_back(word);
    auto process = std::make_unique<Process>(std::move(argv), std::move(environment));
    EXPECT_TRUE(Eventually([&] {
      return std::filesystem::exists(ready) || !IsAlive(process->pid());
    })) << args
        << "\n"
        << process->err();
    EXPECT_TRUE(std::filesystem::exists(ready)) << process->err();
    std::istringstream lines(ReadFile(ready));
    lines >> last_address_;
    for (std::string word; lines >> word;)
      if (word == "metrics")
        lines >> last_metrics_;
      else
        fleet_target_ = word;
    return process;
  }

  void StartUp(int workers, const std::string& more = "",
               std::vector<std::string> environment = {}) {
    gateway_ =
        Start("up --port 0 --workers " + std::to_string(workers) + " --data " + data() + " " + more,
              std::move(environment));
    target_ = last_address_;
  }
  // The same address again after a first time.
  void StartGateway(const std::string& more = "") {
    std::string listen = " --listen 127.0.0.1:0";
    if (!target_.empty()) listen = " --listen " + target_ + " --fleet-listen " + fleet_target_;
    gateway_ = Start("gateway" + listen + " --data " + data() + " " + more);
    target_ = last_address_;
  }
  std::unique_ptr<Process> StartWorker(const std::string& more = "",
                                       std::vector<std::string> environment = {}) {
    return StartWorkerOf(fleet_target_, more, std::move(environment));
  }
  // One that comes to the gateway by another address.
  std::unique_ptr<Process> StartWorkerOf(const std::string& address, const std::string& more = "",
                                         std::vector<std::string> environment = {}) {
    return Start("worker --gateway " + address + " --fleet-secret-file " + data() +
                     "/fleet.secret --identity-file " + folder_ / "identity" + " " + more,
                 std::move(environment));
  }

  std::string data() const { return folder_ / "data"; }
  const std::string& target() const { return target_; }
  const std::string& fleet_target() const { return fleet_target_; }  // where workers join
  const std::string& last_address() const { return last_address_; }  // of the server started last
  const std::string& last_metrics() const { return last_metrics_; }  // where it shows its metrics
  Process& gateway() { return *gateway_; }
  const TempFolder& folder() const { return folder_; }

  const std::string& key() {
    if (key_.empty()) {
      const Ended made = Outboard("key create --data " + data());
      EXPECT_EQ(made.code, 0) << made.err;
      key_ = made.out.substr(0, made.out.find('\n'));
    }
    return key_;
  }
  session::SessionOptions Options() {
    session::SessionOptions options;
    options.target = target_;
    options.key = key();
    return options;
  }
  // Retries: a lost worker needs a moment to return.
  std::unique_ptr<Session> Connect() {
    absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("");
    EXPECT_TRUE(Eventually([&] { return (session = Session::Connect(Options())).ok(); }))
        << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  std::unique_ptr<gateway::Ledger> Books() {
    auto ledger = gateway::Ledger::Open(gateway::AccountsPath(data()));
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return ledger.ok() ? *std::move(ledger) : nullptr;
  }

 private:
  TempFolder folder_;
  std::string target_, fleet_target_, key_, last_address_, last_metrics_;
  int started_ = 0;
  std::unique_ptr<Process> gateway_;
};

}  // namespace outboard::test
