#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace outboard::cli {
namespace {

constexpr int kWrongUsage = 2;

CLI::Option* Of(void* option) { return static_cast<CLI::Option*>(option); }
CLI::App* AppOf(void* app) { return static_cast<CLI::App*>(app); }

// "1e+06" as people write it.
std::string Plain(const std::string& number) {
  if (number.find('e') == std::string::npos || std::stod(number) < 1) return number;
  return std::to_string(std::llround(std::stod(number)));
}

// A check of a number whose message does not quote the range of all doubles, as CLI11's does.
CLI::Validator NumberThat(bool (*fits)(double), const char* what) {
  return CLI::Validator(
      [=](std::string& text) {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && fits(number)) return std::string();
        return "\"" + text + "\" is no number " + what;
      },
      "");
}

// Of a range, in words: CLI11's own writes 1000000.000000. The help reads it (RangeOf).
template <typename Number>
CLI::Validator NumberFrom(Number least, Number most) {
  std::ostringstream ends[2];
  ends[0] << least;
  ends[1] << most;
  const std::string from = Plain(ends[0].str()), to = Plain(ends[1].str());
  const char* const kind = std::is_integral_v<Number> ? "whole number" : "number";
  return CLI::Validator(
      [=](std::string& text) {
        Number number{};
        if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most)
          return std::string();
        return "\"" + text + "\" is no " + kind + " from " + from + " to " + to;
      },
      "N in [" + from + " - " + to + "]");
}

// A file or folder that is there.
CLI::Validator PathThatIsThere() {
  return CLI::Validator(
      [](std::string& text) {
        std::error_code error;
        if (std::filesystem::exists(text, error)) return std::string();
        return "\"" + text + "\" is not there";
      },
      "PATH");
}

// Help in lines of 80 columns: an option, what it takes, then its text with range and default.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string names = make_option_name(option, is_positional);
    if (!is_positional && option->get_type_size() != 0) names += " " + Takes(*option);
    std::vector<std::string> facts;
    if (option->get_required()) facts.push_back("required");
    if (const std::string range = RangeOf(*option); !range.empty()) facts.push_back(range);
    if (option->get_type_size() != 0 && !option->get_default_str().empty())
      facts.push_back("default: " + option->get_default_str());
    std::string text = option->get_description();
    if (!facts.empty()) text += " (" + CLI::detail::join(facts, "; ") + ")";
    return Row(names, text);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Row(command->get_name(), command->get_description());
  }

 private:
  static constexpr size_t kColumns = 80, kTextAt = 28;

  // "INT:INT in [1 - 64]" is a type and a range.
  static std::string Takes(const CLI::Option& option) {
    const std::string type = option.get_type_name(), kind = type.substr(0, type.find(':'));
    if (type.find("SIZE") != std::string::npos) return "BYTES";
    if (type.find("PATH") != std::string::npos) return "PATH";
    return kind == "INT" || kind == "UINT" || kind == "FLOAT" ? "N" : kind;
  }
  static std::string RangeOf(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t begin = type.find(" in ["), middle = type.find(" - ", begin),
                 end = type.find(']', begin);
    if (begin == std::string::npos || middle == std::string::npos || end == std::string::npos)
      return "";
    return type.substr(begin + 5, middle - begin - 5) + " to " +
           type.substr(middle + 3, end - middle - 3);
  }

  static std::string Row(const std::string& left, const std::string& text) {
    std::string out = "  " + left;
    size_t column = out.size();
    if (column + 2 > kTextAt && !text.empty()) {
      out += "\n";
      column = 0;
    }
    std::istringstream words(text);
    bool first = true;
    for (std::string word; words >> word; first = false) {
      if (!first && column + 1 + word.size() > kColumns) {
        out += "\n";
        column = 0;
      }
      const size_t space = column < kTextAt ? kTextAt - column : 1;
      out += std::string(space, ' ') + word;
      column += space + word.size();
    }
    return out + "\n";
  }
};

}  // namespace

template <typename Change>
Option& Option::With(Change change) {
  if (option_ != nullptr) change(*Of(option_));
  return *this;
}

Option& Option::Required() {
  return With([](CLI::Option& option) { option.required(); });
}
Option& Option::Positive() {
  return With([](CLI::Option& option) {
    option.check(NumberThat([](double n) { return n > 0; }, "above 0"));
  });
}
Option& Option::NotNegative() {
  return With([](CLI::Option& option) {
    option.check(NumberThat([](double n) { return n >= 0; }, "of at least 0"));
  });
}
Option& Option::Between(int least, int most) {
  return With([&](CLI::Option& option) { option.check(NumberFrom<int64_t>(least, most)); });
}
Option& Option::Between(double least, double most) {
  return With([&](CLI::Option& option) { option.check(NumberFrom(least, most)); });
}
Option& Option::ExistingPath() {
  return With([](CLI::Option& option) { option.check(PathThatIsThere()); });
}
Option& Option::Once() {
  return With([](CLI::Option& option) { option.expected(1); });
}
Option& Option::OneEach() {
  return With([](CLI::Option& option) { option.allow_extra_args(false); });
}
Option& Option::Needs(const std::string& other) {
  return With([&](CLI::Option& option) { option.needs(other); });
}
Option& Option::Excludes(const Option& other) {
  return With([&](CLI::Option& option) { option.excludes(Of(other.option_)); });
}
bool Option::Given() const { return option_ != nullptr && Of(option_)->count() > 0; }
Option& Option::ShowDefault() {
  return With([](CLI::Option& option) { option.capture_default_str(); });
}
Option& Option::ShowDefault(const std::string& text) {
  return With([&](CLI::Option& option) { option.default_str(text); });
}
Option& Option::Hidden() {
  return With([](CLI::Option& option) { option.group(""); });
}

template <typename Value>
Option Command::AddTo(const std::string& names, Value* value, const std::string& help) {
  if (!is_asked_for_) return Option(nullptr);
  if constexpr (std::is_same_v<Value, bool>)
    return Option(AppOf(app_)->add_flag(names, *value, help));
  CLI::Option* const option = AppOf(app_)->add_option(names, *value, help);
  // 0 of what counts from 0 is often no default, but "not given".
  if constexpr (std::is_arithmetic_v<Value> && std::is_signed_v<Value>)
    option->capture_default_str();
  return Option(option);
}

Option Command::Add(const std::string& names, std::string* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, int* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, int64_t* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, uint64_t* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, double* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, bool* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, std::optional<int>* value, const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, std::optional<uint64_t>* value,
                    const std::string& help) {
  return AddTo(names, value, help);
}
Option Command::Add(const std::string& names, std::vector<std::string>* values,
                    const std::string& help) {
  return AddTo(names, values, help);
}
Option Command::AddBytes(const std::string& names, uint64_t* bytes, const std::string& help) {
  if (!is_asked_for_) return Option(nullptr);
  const CLI::Validator size(
      [](std::string& text) {
        const std::optional<uint64_t> number = ParseBytes(text);
        if (!number.has_value()) return "\"" + text + "\" is no number of bytes like 512MB or 8GiB";
        text = std::to_string(*number);
        return std::string();
      },
      "SIZE");
  return Option(AppOf(app_)->add_option(names, *bytes, help)->transform(size));
}

struct Command::Actions {
  std::map<const void*, std::function<int()>> of;  // by the CLI::App of a command
  const void* program = nullptr;                   // the CLI::App that is no subcommand
  std::optional<std::string> asked_for;            // the only command below it that has options
};

Command Command::Subcommand(const std::string& name, const std::string& help) {
  Command command(nullptr, actions_);
  command.is_asked_for_ =
      is_asked_for_ && (app_ != actions_->program || actions_->asked_for.value_or(name) == name);
  if (is_asked_for_) command.app_ = AppOf(app_)->add_subcommand(name, help);
  return command;
}
Command Command::ListSubcommand(const std::string& help) {
  const Command command = Subcommand("ls", help);
  if (command.app_ != nullptr) AppOf(command.app_)->alias("list");
  return command;
}
void Command::Runs(std::function<int()> run) {
  if (is_asked_for_) actions_->of[app_] = std::move(run);
}
void Command::RequireSubcommand() {
  if (is_asked_for_) AppOf(app_)->require_subcommand(1);
}
bool Command::Given() const { return is_asked_for_ && AppOf(app_)->parsed(); }

Arguments::Arguments(const std::string& name, const std::string& about, const char* asked_for)
    : Command(new CLI::App(about, name), nullptr), owned_actions_(std::make_unique<Actions>()) {
  actions_ = owned_actions_.get();
  actions_->program = app_;
  if (asked_for != nullptr && *asked_for != '-') actions_->asked_for = asked_for;
  AppOf(app_)->formatter(std::make_shared<HelpFormatter>());
}
Arguments::~Arguments() { delete AppOf(app_); }

void Arguments::SetVersion(const std::string& text) {
  AppOf(app_)->set_version_flag("--version", text, "Print the version and exit");
}

int Arguments::Run(int argc, const char* const* argv) {
  if (const std::optional<int> exit_code = Parse(argc, argv)) return *exit_code;
  const CLI::App* at = AppOf(app_);
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  const auto action = actions_->of.find(at);
  OB_CHECK(action != actions_->of.end());
  return action->second();
}

std::optional<int> Arguments::Parse(int argc, const char* const* argv) {
  CLI::App& app = *AppOf(app_);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string command = app.get_name();
    const CLI::App* at = &app;
    int depth = 1;  // in argv, of what follows the commands
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().front();
      command += " " + at->get_name();
      ++depth;
    }
    std::string what = error.what();
    if (const std::vector<std::string> left = app.remaining(/*recurse=*/true);
        dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty())
      what = (left[0].starts_with("-") ? "there is no option \""
                                       : "nothing takes the argument \"") +
             left[0] + "\"";
    if (error.get_name() == "RequiredError" && what == "A subcommand is required")
      what = "a subcommand is required";
    // CLI11 does not name the one that is hidden.
    if (error.get_name() == "ExcludesError") what = "two options say the same: give one";
    // The word behind the commands, where it should be another one.
    const bool has_subcommands = !at->get_subcommands([](const CLI::App*) { return true; }).empty();
    if (has_subcommands && depth < argc && *argv[depth] != '-')
      what = std::string("there is no subcommand \"") + argv[depth] + "\"";
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s; see `%s --help`\n", app.get_name().c_str(), what.c_str(),
                 command.c_str());
    return kWrongUsage;
  }
}

}  // namespace outboard::cli
