// The arguments of a program: options, flags and subcommands, each described once; --help comes
// from these descriptions.
//
//   Arguments arguments("fault_proxy", "Stands between a client and a server");
//   arguments.Add("--target", &target, "HOST:PORT to connect to").Required();
//   arguments.Add("--delay-ms", &delay_ms, "Delay each way").NotNegative();
//   if (const std::optional<int> exit_code = arguments.Parse(argc, argv)) return *exit_code;
//
// A program with subcommands says at each what it Runs, and calls Run instead of Parse.
//
// Only arguments.cc includes CLI11, which does the work: it takes a compiler seconds to read.
// The variables that are pointed to must live until Parse has returned; they hold the defaults.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace outboard::cli {

// One option, to say more about it. Valid as long as its Arguments. Of a command that is not asked
// for nothing is kept.
class Option {
 public:
  Option& Required();
  Option& Positive();
  Option& NotNegative();
  Option& Between(int least, int most);
  Option& Between(double least, double most);
  Option& ExistingPath();  // a file or folder that is there
  Option& Once();          // of an option that may hold several values: exactly one
  Option& OneEach();       // likewise: one each time that it is given, so that -- may follow it
  Option& Needs(const std::string& other);  // is refused without that option
  Option& Excludes(const Option& other);    // is refused together with it
  Option& ShowDefault();  // in --help: the text that the value holds now; numbers show it always
  Option& ShowDefault(const std::string& text);
  Option& Hidden();  // not in --help
  bool Given() const;  // after Parse

 private:
  friend class Command;
  explicit Option(void* option) : option_(option) {}
  // Does `change` to CLI11's option, if there is one.
  template <typename Change>
  Option& With(Change change);
  void* option_;  // nullptr: of a command that is not asked for
};

// A program, or one of its subcommands. Valid as long as its Arguments.
class Command {
 public:
  // `names` is "--listen", "-o,--output", or "file" for a value that stands alone. A bool is a flag
  // and takes no value.
  Option Add(const std::string& names, std::string* value, const std::string& help = "");
  Option Add(const std::string& names, int* value, const std::string& help = "");
  Option Add(const std::string& names, int64_t* value, const std::string& help = "");
  Option Add(const std::string& names, uint64_t* value, const std::string& help = "");
  Option Add(const std::string& names, double* value, const std::string& help = "");
  Option Add(const std::string& names, bool* value, const std::string& help = "");
  Option Add(const std::string& names, std::optional<int>* value, const std::string& help = "");
  Option Add(const std::string& names, std::optional<uint64_t>* value,
             const std::string& help = "");
  Option Add(const std::string& names, std::vector<std::string>* values,
             const std::string& help = "");
  // A number of bytes, also as 512MB (of 1000), 8GiB (of 1024) or 1.5GB; at most 2^63.
  Option AddBytes(const std::string& names, uint64_t* bytes, const std::string& help = "");

  Command Subcommand(const std::string& name, const std::string& help);
  // The subcommand that lists: "ls" everywhere. "list" is accepted too, and is in no help.
  Command ListSubcommand(const std::string& help);
  void RequireSubcommand();  // exactly one
  bool Given() const;        // after Parse: whether this subcommand was asked for
  // What Arguments::Run does when this subcommand, and none below it, is asked for; returns the
  // exit code.
  void Runs(std::function<int()> run);
  // The same of run(*flags), where `flags` are those that its options set.
  template <typename Flags, typename Run>
  void Runs(std::shared_ptr<Flags> flags, Run run) {
    Runs([flags = std::move(flags), run = std::move(run)] { return run(*flags); });
  }

 protected:
  struct Actions;
  Command(void* app, Actions* actions) : app_(app), actions_(actions) {}
  void* app_;  // nullptr: below a command that is not asked for
  Actions* actions_;
  bool is_asked_for_ = true;  // else it has a name and a help text alone

 private:
  template <typename Value>
  Option AddTo(const std::string& names, Value* value, const std::string& help);
};

class Arguments : public Command {
 public:
  // `name` as in --help, and before the message of a wrong usage. `asked_for`: the program's first
  // argument, nullptr if it has none. Where that is no option, the options of subcommands with
  // other names are not kept: to declare those of fifty commands takes longer than most of them.
  Arguments(const std::string& name, const std::string& about, const char* asked_for = nullptr);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void SetVersion(const std::string& text);  // what --version prints

  // Returns nothing when the program can go on, else its exit code: 0 after --help and --version, 2
  // after one line on stderr that says what is wrong and which help to read.
  std::optional<int> Parse(int argc, const char* const* argv);
  // Parses, and does what the subcommand that was asked for `Runs`. Returns the exit code.
  int Run(int argc, const char* const* argv);

 private:
  std::unique_ptr<Actions> owned_actions_;
};

}  // namespace outboard::cli
