// `outboard sweep` as a user has it: real processes, whose programs are shell scripts.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"

namespace outboard {
namespace {

// A program at a terminal of its own, as a user sits at it. Killed by the destructor.
class AtTerminal {
 public:
  AtTerminal(std::vector<std::string> argv, const std::string& variable) {
    std::vector<char*> arguments;
    for (std::string& argument : argv) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    std::string name_and_value = variable;
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    putenv(name_and_value.data());
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~AtTerminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
  }
  AtTerminal(const AtTerminal&) = delete;
  AtTerminal& operator=(const AtTerminal&) = delete;

  // Waits until `text` was shown, since the last one that was.
  bool Shows(const std::string& text) {
    for (int tries = 0; tries < 600; ++tries) {
      if (const size_t at = shown_.find(text); at != std::string::npos) {
        shown_.erase(0, at + text.size());
        return true;
      }
      pollfd on{terminal_, POLLIN, 0};
      if (poll(&on, 1, 100) <= 0) continue;
      char piece[4096];
      const ssize_t count = read(terminal_, piece, sizeof piece);
      if (count <= 0) return false;  // it has ended
      shown_.append(piece, static_cast<size_t>(count));
    }
    return false;
  }
  void Type(const std::string& text) {
    EXPECT_EQ(write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // The exit code.
  int Wait() {
    int status = 0;
    const pid_t pid = std::exchange(pid_, -1);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& shown() const { return shown_; }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
};

class SweepCliTest : public ::testing::Test {
 protected:
  test::Ended Run(std::vector<std::string> args, const std::string& cloud = "CLOUD=") {
    args.insert(args.begin(), {test::kOutboardProgram, "sweep"});
    return test::RunToEnd(args, {"OUTBOARD_DATA=" + (folder_ / "data"), cloud});
  }
  std::string Script(const std::string& text) {
    const std::string path = folder_ / "trial.sh";
    std::ofstream(path) << text;
    return path;
  }
  std::string Newest() {
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "data/sweeps"))
      newest = std::max(newest, entry.path().filename().string());
    return newest;
  }
  std::string Csv() { return Run({"show", "--csv"}).out; }

  test::TempFolder folder_;
};

TEST_F(SweepCliTest, AGridRunsToItsEnd) {
  const std::string script = Script(
      "echo \"step=1 loss=$(($1 * $2))\"\n"
      "echo \"step=2 loss=$(($1 + $2)) cost_micro_usd=5\" >&$OUTBOARD_REPORT_FD\n");
  const test::Ended ended =
      Run({"-j", "2", "-p", "a=2,3", "-p", "b=4,5", "--", "sh", "-u", script, "{a}", "{b}"});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("4 of 4 trials ended"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("best: loss 6 at trial 1 (a=2 b=4)"), std::string::npos) << ended.out;
  EXPECT_EQ(Csv(),
            "trial,a,b,state,step,loss,best_loss\n"
            "1,2,4,done,2,6,6\n"
            "2,2,5,done,2,7,7\n"
            "3,3,4,done,2,7,7\n"
            "4,3,5,done,2,8,8\n");
  EXPECT_NE(Run({"show", "--json"}).out.find("\"cost_usd\":5e-06"), std::string::npos);
  EXPECT_NE(test::ReadFile(folder_ / "data/sweeps/" + Newest() + "/trial-4.log").find("loss=15"),
            std::string::npos);
  EXPECT_NE(Run({"ls"}).out.find("done"), std::string::npos);
}

// What a gateway does with the names is tests/python/named_sessions_test.py's.
TEST_F(SweepCliTest, AWarmUpRunsOnceAndItsSessionIsNamedToEveryTrial) {
  const std::string script = Script(
      "echo \"name=$CLOUD_SESSION_NAME fork=$CLOUD_FORK_OF until=$OUTBOARD_WARM_UP\"\n"
      "echo \"step=5 loss=$1 cost_micro_usd=7\" >&$OUTBOARD_REPORT_FD\n");
  const auto run = [&](const char* warm_up, const char* cloud) {
    return test::RunToEnd({test::kOutboardProgram, "sweep", "--warm-up", warm_up, "-p", "a=1,2",
                           "--", "sh", script, "{a}"},
                          {"OUTBOARD_DATA=" + (folder_ / "data"), std::string("CLOUD=") + cloud,
                           "CLOUD_HOST=unix:/nowhere", "CLOUD_SESSION_NAME=", "CLOUD_FORK_OF="});
  };
  const test::Ended ended = run("5", "1");
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  const std::string id = Newest(), folder = folder_ / "data/sweeps/" + id;
  EXPECT_NE(test::ReadFile(folder + "/warm-up.log")
                .find("name=sweep-" + id + "-warm-up fork= until=5"),
            std::string::npos)
      << test::ReadFile(folder + "/warm-up.log");
  for (const char* log : {"/trial-1.log", "/trial-2.log"})
    EXPECT_NE(test::ReadFile(folder + log).find("name= fork=sweep-" + id + "-warm-up until=\n"),
              std::string::npos)
        << test::ReadFile(folder + log);
  EXPECT_EQ(test::ReadFile(folder + "/warm-up"), "7\n");
  // It ends before step 6: no trial begins.
  const test::Ended short_of = run("6", "1");
  EXPECT_NE(short_of.code, 0);
  EXPECT_NE(test::ReadFile(folder_ / "data/sweeps/" + Newest() + "/runner.log")
                .find("ended before it reported step 6"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "data/sweeps/" + Newest() + "/trial-1.log"));
  // Private workers share no state.
  EXPECT_EQ(run("5", "0").code, 2);
}

TEST_F(SweepCliTest, WrongUsageStartsNothing) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"-p", "lr=", "--", "true", "{lr}"}, "-p lr=: no value"},
      {{"-p", "lr=5..1", "-n", "2", "--", "true", "{lr}"}, "5 is not below 1"},
      {{"-p", "lr=1..5", "-n", "10001", "--", "true", "{lr}"}, "at most 10000 trials"},
      {{"-p", "a=1,2", "--", "true", "{a}", "{lr}"}, "there is no -p lr="},
      {{"-p", "a=1,2", "--max-cost", "-1", "--", "true", "{a}"}, "--max-cost"}};
  for (const auto& [args, words] : cases) {
    const test::Ended ended = Run(args);
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_NE(ended.err.find(words), std::string::npos) << ended.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "data/sweeps"));
  EXPECT_EQ(Run({"watch", "of-nobody"}).code, 1);
}

TEST_F(SweepCliTest, ATrialThatFailsSaysWhyAndTheOthersGoOn) {
  const std::string script = Script(
      "case $1 in 1) echo 'cannot open it' >&2; exit 3;; 2) kill -9 $$;; 3) exit 0;;\n"
      "4) echo step=5 loss=nan;; esac\n");
  const test::Ended ended = Run({"-p", "a=1,2,3,4", "--", "sh", script, "{a}"});
  EXPECT_EQ(ended.code, 1);
  const std::string rows = Run({"show"}).out;
  for (const char* words : {"exit code 3: cannot open it", "ended by Killed", "it reported no loss",
                            "loss is nan at step 5"})
    EXPECT_NE(rows.find(words), std::string::npos) << words << "\n" << rows;
  EXPECT_NE(ended.out.find("2 failed"), std::string::npos) << ended.out;
  const test::Ended absent = Run({"-p", "a=1", "--", "no-such-program", "{a}"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_NE(absent.out.find("no-such-program: No such file"), std::string::npos) << absent.out;
}

// A trial that has begun at a rung behind a better one is stopped before its end.
TEST_F(SweepCliTest, HalvingStopsWhatFallsBehind) {
  const std::string script = Script(
      "trap 'exit 130' INT\n"
      "for i in $(seq 1 30); do echo step=$i loss=$1; [ $i -lt 10 ] || sleep $2; done\n");
  const test::Ended ended =
      Run({"-p", "a=1,2", "--strategy", "halving", "-n", "2", "--seed", "4", "--first-rung", "10",
           "-j", "1", "--", "sh", script, "{a}", "0.01"});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  // Drawn: both values, the better one first or second; two equal ones both go on.
  const std::string csv = Csv();
  if (csv.find("1,1,") != std::string::npos && csv.find("2,2,") != std::string::npos) {
    EXPECT_NE(csv.find("2,2,stopped"), std::string::npos) << csv;
  }
}

// The sum of the bounds is never above the sweep's, and what is left over goes to later ones.
TEST_F(SweepCliTest, MoneyIsDivided) {
  const std::string script =
      Script("echo \"step=1 loss=$CLOUD_MAX_COST cost_micro_usd=$1\" >&$OUTBOARD_REPORT_FD\n");
  test::Ended ended = Run(
      {"-p", "a=100000,1100000,7", "--max-cost", "1.2", "-j", "1", "--", "sh", script, "{a}"},
      "CLOUD=1");
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_EQ(Csv(),
            "trial,a,state,step,loss,best_loss\n"
            "1,100000,done,1,0.4,0.4\n"     // a third of 1.2
            "2,1100000,done,1,0.55,0.55\n"  // half of 1.1
            "3,7,waiting,,,\n");
  EXPECT_NE(Run({"show"}).out.find("no money is left for it"), std::string::npos);
  const test::Ended here = Run({"resume"});
  EXPECT_EQ(here.code, 2);
  EXPECT_NE(here.err.find("--max-cost bounds what trials cost at a gateway: set CLOUD=1"),
            std::string::npos)
      << here.err;
  ended = Run({"resume", "--max-cost", "2"}, "CLOUD=1");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_NE(Csv().find("3,7,done,1,0.8,0.8"), std::string::npos) << Csv();
}

// A private worker has all cores and no price: two trials at a time would compete for the cores,
// and a bound would bound nothing.
TEST_F(SweepCliTest, OnThisMachineTrialsRunOneByOne_AndHaveNoBound) {
  const std::string script = Script(
      "mkdir \"$0.running\" || exit 9\nsleep 0.1\nrmdir \"$0.running\"\necho step=1 loss=$1\n");
  const test::Ended ended = Run({"-p", "a=1,2,3", "--", "sh", script, "{a}"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_NE(ended.err.find("at most 1 at once"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("a private worker of its own"), std::string::npos) << ended.err;
  const test::Ended cloud = Run({"-p", "a=1,2,3", "--", "true", "{a}"}, "CLOUD=1");
  EXPECT_NE(cloud.err.find("at most 3 at once"), std::string::npos) << cloud.err;
  EXPECT_EQ(cloud.err.find("private worker"), std::string::npos) << cloud.err;
  const test::Ended bound = Run({"-p", "a=1,2", "--max-cost", "1", "--", "true", "{a}"});
  EXPECT_EQ(bound.code, 2);
  EXPECT_NE(bound.err.find("--max-cost bounds what trials cost at a gateway: set CLOUD=1"),
            std::string::npos)
      << bound.err;
}

TEST_F(SweepCliTest, KilledAgainAndAgainItEndsWithTheSameResults) {
  const std::string script =
      Script("for i in 1 2 3; do echo step=$i loss=$(($1 * 10 - i)); sleep 0.1; done\n");
  const std::vector<std::string> args = {"-p", "a=1,2,3,4,5,6", "-j", "2", "--",
                                         "sh", script,          "{a}"};
  ASSERT_EQ(Run(args).code, 0);
  const std::string expected = Csv(), first = Newest();
  std::vector<std::string> detached = args;
  detached.insert(detached.begin(), "--detach");
  test::Ended ended = Run(detached);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string id = ended.out.substr(0, ended.out.find('\n'));
  ASSERT_NE(id, first);
  for (int kills = 0; kills < 3; ++kills) {
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    const int pid = std::atoi(test::ReadFile(folder_ / "data/sweeps/" + id + "/runner").c_str());
    if (kill(pid, SIGKILL) != 0) break;  // it has ended
    // The lock ends with the process.
    for (ended = Run({"resume", id, "--detach"}); ended.code != 0;
         ended = Run({"resume", id, "--detach"})) {
      ASSERT_NE(ended.err.find("is running"), std::string::npos) << ended.err;
    }
  }
  EXPECT_EQ(Run({"watch", id}).code, 0);
  EXPECT_EQ(Run({"show", id, "--csv"}).out, expected);
}

TEST_F(SweepCliTest, AtATerminal_CtrlCAsks_AndLeavesTheTrialsOrStopsThem) {
  const std::string script = Script("echo step=1 loss=$1; sleep 60\n");
  // A sweep that runs, and has been asked to end by Ctrl-C.
  const auto interrupted = [&] {
    auto sweep = std::make_unique<AtTerminal>(
        std::vector<std::string>{test::kOutboardProgram, "sweep", "-p", "a=1,2", "--", "sh", script,
                                 "{a}"},
        "OUTBOARD_DATA=" + (folder_ / "data"));
    EXPECT_TRUE(sweep->Shows("running")) << sweep->shown();
    sweep->Type("\x03");
    EXPECT_TRUE(sweep->Shows("leave them running (l)")) << sweep->shown();
    return sweep;
  };
  const auto leaving = interrupted();
  leaving->Type("l\n");
  EXPECT_TRUE(leaving->Shows("goes on")) << leaving->shown();
  EXPECT_EQ(leaving->Wait(), 0);
  EXPECT_NE(Run({"ls"}).out.find("running"), std::string::npos);
  EXPECT_EQ(Run({"stop"}).code, 0);

  const auto stopping = interrupted();
  stopping->Type("s\n");
  EXPECT_TRUE(stopping->Shows("outboard sweep resume")) << stopping->shown();
  EXPECT_EQ(stopping->Wait(), 130);
  EXPECT_NE(Run({"show", "--csv"}).out.find("1,1,waiting"), std::string::npos);
}

TEST_F(SweepCliTest, StoppedItGoesOnLater) {
  const std::string script = Script("echo step=1 loss=$1; sleep $2\n");
  test::Ended ended = Run(
      {"-p", "a=1,2", "-p", "s=0.1,60", "-j", "4", "--detach", "--", "sh", script, "{a}", "{s}"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  ended = Run({"stop"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.out.find("is stopped"), std::string::npos) << ended.out;
  EXPECT_NE(Run({"ls"}).out.find("unfinished"), std::string::npos);
  EXPECT_NE(Run({"show", "--csv"}).out.find(",60,waiting,,,"), std::string::npos);
  EXPECT_EQ(Run({"watch"}).code, 1) << "trials are left";
}

}  // namespace
}  // namespace outboard
