#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <utility>

namespace outboard::cli {
namespace {

constexpr int kWrongUsage = 2;

CLI::Option* Of(void* option) { return static_cast<CLI::Option*>(option); }
CLI::App* AppOf(void* app) { return static_cast<CLI::App*>(app); }

}  // namespace

Option& Option::Required() {
  Of(option_)->required();
  return *this;
}
Option& Option::Positive() {
  Of(option_)->check(CLI::PositiveNumber);
  return *this;
}
Option& Option::NotNegative() {
  Of(option_)->check(CLI::NonNegativeNumber);
  return *this;
}
Option& Option::Between(int least, int most) {
  Of(option_)->check(CLI::Range(least, most));
  return *this;
}
Option& Option::Between(double least, double most) {
  Of(option_)->check(CLI::Range(least, most));
  return *this;
}
Option& Option::ExistingPath() {
  Of(option_)->check(CLI::ExistingPath);
  return *this;
}
Option& Option::Once() {
  Of(option_)->expected(1);
  return *this;
}
Option& Option::Needs(const std::string& other) {
  Of(option_)->needs(other);
  return *this;
}
Option& Option::ShowDefault() {
  Of(option_)->capture_default_str();
  return *this;
}
Option& Option::ShowDefault(const std::string& text) {
  Of(option_)->default_str(text);
  return *this;
}
Option& Option::Hidden() {
  Of(option_)->group("");
  return *this;
}

Option Command::Add(const std::string& names, std::string* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, int* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, int64_t* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, uint64_t* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, double* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, bool* value, const std::string& help) {
  return Option(AppOf(app_)->add_flag(names, *value, help));
}
Option Command::Add(const std::string& names, std::optional<int>* value, const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, std::optional<uint64_t>* value,
                    const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *value, help));
}
Option Command::Add(const std::string& names, std::vector<std::string>* values,
                    const std::string& help) {
  return Option(AppOf(app_)->add_option(names, *values, help));
}
Option Command::AddBytes(const std::string& names, uint64_t* bytes, const std::string& help) {
  // kB, MB, GB of 1000, as all that is printed; KiB, MiB, GiB of 1024.
  const CLI::Validator size(
      [as_size = CLI::AsSizeValue(true)](std::string& text) {
        return text.starts_with('-') ? "a number of bytes is not negative" : as_size(text);
      },
      "SIZE");
  return Option(AppOf(app_)->add_option(names, *bytes, help)->transform(size));
}

Command Command::Subcommand(const std::string& name, const std::string& help) {
  return Command(AppOf(app_)->add_subcommand(name, help));
}
void Command::RequireSubcommand() { AppOf(app_)->require_subcommand(1); }
bool Command::Given() const { return AppOf(app_)->parsed(); }

Arguments::Arguments(const std::string& name, const std::string& about)
    : Command(new CLI::App(about, name)) {}
Arguments::~Arguments() { delete AppOf(app_); }

void Arguments::SetVersion(const std::string& text) {
  AppOf(app_)->set_version_flag("--version", text);
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
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().front();
      command += " " + at->get_name();
    }
    std::string what = error.what();
    const bool has_subcommands =
        !std::as_const(app).get_subcommands([](const CLI::App*) { return true; }).empty();
    if (has_subcommands && at == &app && argc > 1 && *argv[1] != '-')
      what = std::string("there is no subcommand \"") + argv[1] + "\"";
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s; see `%s --help`\n", app.get_name().c_str(), what.c_str(),
                 command.c_str());
    return kWrongUsage;
  }
}

}  // namespace outboard::cli
