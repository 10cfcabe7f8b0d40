#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "worker/compile/rewrite_log.h"

namespace outboard::cli {

extern const char* const kVizPage;  // viz_page.html

namespace {

absl::StatusOr<std::string> FileOf(const VizFlags& flags) {
  const std::string place = flags.file.empty() ? worker::DefaultLogFolder() : flags.file;
  if (std::filesystem::is_regular_file(place)) return place;
  return worker::NewestLog(place);
}

absl::StatusOr<std::string> Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

std::vector<Resource> VizResources(const std::string& file) {
  return {{"/", "text/html; charset=utf-8", [] { return std::string(kVizPage); }},
          {"/rewrites", "application/x-ndjson", [file] { return Contents(file); }}};
}

int RunViz(const VizFlags& flags) {
  const auto file = FileOf(flags);
  if (!file.ok()) return Report(file.status());
  auto server = PageServer::Start(flags.port, VizResources(*file));
  if (!server.ok()) return Report(server.status());
  absl::Status status =
      TellReady(flags.ready, absl::StrCat("http://127.0.0.1:", (*server)->port(), "/"));
  if (status.ok()) status = AwaitEnd(flags.life_fd);
  return Report(status);
}

}  // namespace outboard::cli
