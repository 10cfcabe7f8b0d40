#include "worker/process/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/process/child_process.h"

namespace outboard::worker {
namespace {

constexpr size_t kNotesBytesMax = 4096;
constexpr int kLeastDescriptor = 16;
constexpr int kSegmentsMax = 64;  // a program of ours has a dozen
constexpr size_t kIdBytesMax = 16;  // of 20; two fit into what a gateway keeps

// Reads `bytes` of the file at `at` into `to`; false: there are not so many.
template <typename T>
bool ReadAt(std::ifstream& file, uint64_t at, T* to, size_t bytes = sizeof(T)) {
  file.seekg(static_cast<std::streamoff>(at));
  return static_cast<bool>(
      file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes)));
}

// The id among these notes; empty: there is none.
std::string IdIn(const std::vector<char>& notes) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const size_t name = at + sizeof note, id = name + padded(note.n_namesz);
    if (note.n_namesz > notes.size() || note.n_descsz > notes.size() ||
        id + note.n_descsz > notes.size())
      return "";
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
        std::memcmp(notes.data() + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0)
      return absl::BytesToHexString(
          {notes.data() + id, std::min<size_t>(note.n_descsz, kIdBytesMax)});
    at = id + padded(note.n_descsz);
  }
  return "";
}

}  // namespace

std::string BuildIdOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header;
  if (!file || !ReadAt(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return "";
  for (int i = 0; i < std::min<int>(header.e_phnum, kSegmentsMax); ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(file, header.e_phoff + static_cast<uint64_t>(i) * sizeof segment, &segment))
      return "";
    if (segment.p_type != PT_NOTE) continue;
    std::vector<char> notes(std::min<uint64_t>(segment.p_filesz, kNotesBytesMax));
    if (!ReadAt(file, segment.p_offset, notes.data(), notes.size())) return "";
    if (std::string id = IdIn(notes); !id.empty()) return id;
  }
  return "";
}

absl::Status ProgramFile::Check() const {
  if (BuildIdOf(file) == build_id) return absl::OkStatus();
  const std::string name = path.substr(path.rfind('/') + 1);  // a tenant may read it
  return absl::UnavailableError(
      absl::StrCat(name, " was written over while this worker runs; start the worker again"));
}

ProgramFile ProgramAt(const std::string& path) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, ProgramFile>();
  const std::lock_guard lock(mutex);
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  const int low = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (low < 0) return {path, path, ""};  // whoever starts it says why
  // Not one of those that a child is given before it is the program (ChildProcess::Start).
  const int fd = fcntl(low, F_DUPFD_CLOEXEC, kLeastDescriptor);
  close(low);
  if (fd < 0) return {path, path, ""};
  ProgramFile program{path, absl::StrCat("/proc/self/fd/", fd), ""};
  program.build_id = BuildIdOf(program.file);
  if (program.build_id.empty()) {
    close(fd);
    program.file = path;  // a script's interpreter could not open the descriptor
  }
  return known.emplace(path, std::move(program)).first->second;
}

ProgramFile CompilerProgram() {
  static const std::string path = ProgramBeside("outboard-compiler");
  return ProgramAt(path);
}

std::string BuildOfWorker() {
  static const std::string own = BuildIdOf("/proc/self/exe");
  const std::string compiler = CompilerProgram().build_id;
  return compiler.empty() ? own : absl::StrCat(own, "+", compiler);
}

}  // namespace outboard::worker
