#include "worker/groups/build_id.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/process/child_process.h"

namespace outboard::worker {
namespace {

constexpr size_t kNotesBytesMax = 4096;
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

std::string BuildOfWorker() {
  static const std::string build = [] {
    const std::string own = BuildIdOf("/proc/self/exe");
    const std::string compiler = BuildIdOf(ProgramBeside("outboard-compiler"));
    return compiler.empty() ? own : absl::StrCat(own, "+", compiler);
  }();
  return build;
}

}  // namespace outboard::worker
