#include "runtime/cpu/elf_loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/cpu/symbols.h"
#include "runtime/limits.h"

namespace outboard::cpu {
namespace {

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("object: ", View(what)));
}

// `jmp *[rip + 0]` and the address it reads: calls reach 2 GiB, this process's libraries may be
// further away.
constexpr size_t kStubBytes = 16;
constexpr uint8_t kStubJump[6] = {0xFF, 0x25, 0, 0, 0, 0};

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Copies a T out of the file: objects need not be aligned.
template <typename T>
std::optional<T> ReadAt(std::string_view file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// One object on its way into memory. The image is: code, stubs | constants, addresses (GOT).
class Loader {
 public:
  Loader(std::string_view file, std::string_view symbol) : file_(file), wanted_(symbol) {}
  ~Loader() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }

  absl::Status Run() {
    for (auto step : {&Loader::ReadSections, &Loader::ReadSymbols, &Loader::PlaceSections,
                      &Loader::Resolve, &Loader::Relocate, &Loader::Protect}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void* TakeMemory() { return std::exchange(memory_, nullptr); }
  size_t bytes() const { return bytes_; }
  KernelFunction function() const { return reinterpret_cast<KernelFunction>(entry_); }

 private:
  struct Symbol {
    std::string_view name;
    Elf64_Sym entry;
    uint64_t address = 0;  // in this process
    bool external = false;
    bool needs_slot = false;  // has a stub and a GOT entry
    size_t slot = 0;
  };

  absl::Status ReadSections() {
    if (file_.size() > limits::kObjectBytesMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "object of ", file_.size(), " bytes; the limit is ", limits::kObjectBytesMax));
    }
    const auto header = ReadAt<Elf64_Ehdr>(file_, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
      return Malformed("not an ELF file");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != EM_X86_64 || header->e_type != ET_REL ||
        header->e_shentsize != sizeof(Elf64_Shdr)) {
      return Malformed("not a relocatable x86-64 object");
    }
    for (uint64_t i = 0; i < header->e_shnum; ++i) {
      // The table's start is from the file: the sum is checked for overflow by way of the file's
      // size.
      if (header->e_shoff > file_.size()) return Malformed("section table out of range");
      const auto section = ReadAt<Elf64_Shdr>(file_, header->e_shoff + i * sizeof(Elf64_Shdr));
      if (!section) return Malformed("section table truncated");
      if (section->sh_type != SHT_NOBITS &&
          (section->sh_offset > file_.size() ||
           file_.size() - section->sh_offset < section->sh_size)) {
        return Malformed(absl::StrCat("section ", i, " out of range"));
      }
      sections_.push_back(*section);
    }
    if (header->e_shstrndx >= sections_.size()) return Malformed("no section names");
    for (const Elf64_Shdr& section : sections_) {
      section_names_.push_back(
          StringAt(sections_[header->e_shstrndx], section.sh_name).value_or("?"));
    }
    place_.assign(sections_.size(), kNotPlaced);
    return absl::OkStatus();
  }

  std::string_view Bytes(const Elf64_Shdr& section) const {
    return section.sh_type == SHT_NOBITS ? std::string_view()
                                         : file_.substr(section.sh_offset, section.sh_size);
  }

  std::optional<std::string_view> StringAt(const Elf64_Shdr& table, uint64_t offset) const {
    const std::string_view bytes = Bytes(table);
    if (offset >= bytes.size()) return std::nullopt;
    const size_t end = bytes.find('\0', offset);
    if (end == std::string_view::npos) return std::nullopt;
    return bytes.substr(offset, end - offset);
  }

  absl::Status ReadSymbols() {
    for (size_t s = 0; s < sections_.size(); ++s) {
      if (sections_[s].sh_type != SHT_SYMTAB) continue;
      if (symbol_table_ != 0) return Malformed("two symbol tables");
      symbol_table_ = s;
      if (sections_[s].sh_link >= sections_.size()) return Malformed("symbol names missing");
      const std::string_view bytes = Bytes(sections_[s]);
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= bytes.size(); at += sizeof(Elf64_Sym)) {
        Symbol symbol;
        symbol.entry = *ReadAt<Elf64_Sym>(bytes, at);
        const auto name = StringAt(sections_[sections_[s].sh_link], symbol.entry.st_name);
        if (!name) return Malformed("symbol name out of range");
        symbol.name = *name;
        symbols_.push_back(symbol);
      }
    }
    return symbol_table_ != 0 ? absl::OkStatus() : Malformed("no symbols");
  }

  // Unwind tables are left out: nothing throws through a kernel.
  static bool IsLoaded(const Elf64_Shdr& section, std::string_view name) {
    return (section.sh_flags & SHF_ALLOC) != 0 && section.sh_size > 0 && name != ".eh_frame" &&
           section.sh_type != SHT_NOTE;
  }

  absl::Status Place(bool code, size_t& end) {
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if (!IsLoaded(section, section_names_[i]) ||
          ((section.sh_flags & SHF_EXECINSTR) != 0) != code)
        continue;
      const bool constant = section.sh_type == SHT_PROGBITS || section.sh_type == SHT_X86_64_UNWIND;
      const bool relocated_constant = section_names_[i].starts_with(".data.rel.ro");
      if (!constant || ((section.sh_flags & SHF_WRITE) != 0 && !relocated_constant) ||
          (section.sh_flags & SHF_TLS) != 0) {
        return absl::UnimplementedError(absl::StrCat("object: section ", View(section_names_[i]),
                                                     " of type ", section.sh_type, ", flags ",
                                                     section.sh_flags));
      }
      const size_t alignment = section.sh_addralign == 0 ? 1 : section.sh_addralign;
      if (alignment > 4096 || (alignment & (alignment - 1)) != 0) return Malformed("alignment");
      place_[i] = RoundUp(end, alignment);
      end =
          place_[i] +
          section
              .sh_size;  // sizes are within the file, so that sums of 2^16 of them do not overflow
    }
    return absl::OkStatus();
  }

  absl::Status PlaceSections() {
    size_t slots = 0;
    for (Symbol& symbol : symbols_) {
      const bool named = !symbol.name.empty() || ELF64_ST_TYPE(symbol.entry.st_info) == STT_SECTION;
      symbol.needs_slot = named;
      if (named) symbol.slot = slots++;
    }
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t end = 0;
    if (absl::Status status = Place(true, end); !status.ok()) return status;
    stubs_ = RoundUp(end, kStubBytes);
    code_bytes_ = RoundUp(stubs_ + slots * kStubBytes, page);
    end = code_bytes_;
    if (absl::Status status = Place(false, end); !status.ok()) return status;
    got_ = RoundUp(end, sizeof(uint64_t));
    bytes_ = RoundUp(got_ + slots * sizeof(uint64_t) + 1, page);
    if (bytes_ > 2 * limits::kObjectBytesMax)
      return absl::ResourceExhaustedError("object: image too large");

    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return absl::ResourceExhaustedError(absl::StrCat("no memory for an object of ", bytes_));
    memory_ = static_cast<uint8_t*>(memory);
    for (size_t i = 0; i < sections_.size(); ++i) {
      if (place_[i] == kNotPlaced) continue;
      const std::string_view bytes = Bytes(sections_[i]);
      std::memcpy(memory_ + place_[i], bytes.data(), bytes.size());
    }
    return absl::OkStatus();
  }

  absl::Status Resolve() {
    for (size_t i = 1; i < symbols_.size(); ++i) {
      Symbol& symbol = symbols_[i];
      const uint16_t in = symbol.entry.st_shndx;
      if (in == SHN_UNDEF) {
        symbol.external = true;  // one that is not allowed is an error where it is used: assemblers
                                 // list some that are not
        symbol.address = reinterpret_cast<uint64_t>(AllowedSymbol(symbol.name));
      } else if (in < sections_.size()) {
        if (place_[in] == kNotPlaced)
          continue;  // of debug information, unwind tables: an address of 0 marks it
        if (symbol.entry.st_value > sections_[in].sh_size)
          return Malformed("symbol out of its section");
        symbol.address = reinterpret_cast<uint64_t>(memory_ + place_[in] + symbol.entry.st_value);
      } else if (in != SHN_ABS || ELF64_ST_TYPE(symbol.entry.st_info) != STT_FILE) {
        return absl::UnimplementedError(
            absl::StrCat("object: symbol ", View(symbol.name), " of section index ", in));
      }
      if (symbol.needs_slot && symbol.address != 0) WriteSlot(symbol);
      if (symbol.name == wanted_ && ELF64_ST_TYPE(symbol.entry.st_info) == STT_FUNC &&
          !symbol.external) {
        if ((sections_[in].sh_flags & SHF_EXECINSTR) == 0)
          return Malformed("the kernel is not code");
        entry_ = symbol.address;
      }
    }
    if (entry_ == 0)
      return absl::NotFoundError(absl::StrCat("object: no function ", View(wanted_)));
    return absl::OkStatus();
  }

  void WriteSlot(const Symbol& symbol) {
    uint8_t* stub = memory_ + stubs_ + symbol.slot * kStubBytes;
    std::memcpy(stub, kStubJump, sizeof(kStubJump));
    std::memcpy(stub + sizeof(kStubJump), &symbol.address, sizeof(symbol.address));
    std::memcpy(memory_ + got_ + symbol.slot * sizeof(uint64_t), &symbol.address,
                sizeof(symbol.address));
  }

  absl::Status Relocate() {
    for (size_t s = 0; s < sections_.size(); ++s) {
      const Elf64_Shdr& section = sections_[s];
      if (section.sh_type == SHT_REL)
        return absl::UnimplementedError("object: relocations without addends");
      if (section.sh_type != SHT_RELA) continue;
      if (section.sh_info >= sections_.size() || section.sh_link != symbol_table_)
        return Malformed("relocations");
      if (place_[section.sh_info] == kNotPlaced) continue;
      const std::string_view bytes = Bytes(section);
      for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= bytes.size(); at += sizeof(Elf64_Rela)) {
        if (absl::Status status = Apply(section.sh_info, *ReadAt<Elf64_Rela>(bytes, at));
            !status.ok())
          return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Apply(size_t target, const Elf64_Rela& rela) {
    const uint64_t index = ELF64_R_SYM(rela.r_info);
    const uint32_t type = ELF64_R_TYPE(rela.r_info);
    if (type == R_X86_64_NONE) return absl::OkStatus();
    if (index >= symbols_.size()) return Malformed("relocation of no symbol");
    const Symbol& symbol = symbols_[index];
    if (symbol.address == 0 && symbol.external) {
      return absl::NotFoundError(absl::StrCat("object: kernels may not call ", View(symbol.name)));
    }
    if (symbol.address == 0) return Malformed("relocation of a symbol that is not loaded");
    const size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
    if (rela.r_offset > sections_[target].sh_size ||
        sections_[target].sh_size - rela.r_offset < width) {
      return Malformed("relocation out of its section");
    }
    uint8_t* place = memory_ + place_[target] + rela.r_offset;
    // Unsigned, since addends are the file's and may wrap.
    const auto at = reinterpret_cast<uint64_t>(place);
    const auto addend = static_cast<uint64_t>(rela.r_addend);
    uint64_t value = symbol.address;
    switch (type) {
      case R_X86_64_64: return Write(place, value + addend, 8);
      case R_X86_64_PC64: return Write(place, value + addend - at, 8);
      case R_X86_64_PLT32:
      case R_X86_64_PC32:
        if (symbol.external)
          value = reinterpret_cast<uint64_t>(memory_ + stubs_ + symbol.slot * kStubBytes);
        return Write(place, value + addend - at, 4);
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
        if (!symbol.needs_slot) return Malformed("relocation of a symbol without a name");
        value = reinterpret_cast<uint64_t>(memory_ + got_ + symbol.slot * sizeof(uint64_t));
        return Write(place, value + addend - at, 4);
      default:
        return absl::UnimplementedError(
            absl::StrCat("object: relocation type ", type, " of ", View(symbol.name)));
    }
  }

  static absl::Status Write(uint8_t* place, uint64_t bits, size_t width) {
    const auto value = static_cast<int64_t>(bits);
    if (width == 4 && (value > INT32_MAX || value < INT32_MIN))
      return Malformed("relocation out of reach");
    std::memcpy(place, &value, width);  // little-endian: the low bytes come first
    return absl::OkStatus();
  }

  absl::Status Protect() {
    if (mprotect(memory_, code_bytes_, PROT_READ | PROT_EXEC) != 0 ||
        mprotect(memory_ + code_bytes_, bytes_ - code_bytes_, PROT_READ) != 0) {
      return absl::ResourceExhaustedError("object: memory cannot be made executable");
    }
    return absl::OkStatus();
  }

  static constexpr size_t kNotPlaced = ~size_t{0};

  std::string_view file_;
  std::string_view wanted_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::string_view> section_names_;
  std::vector<size_t> place_;  // offset in the image, by section
  std::vector<Symbol> symbols_;
  size_t symbol_table_ = 0;  // section 0 is never one
  size_t stubs_ = 0;
  size_t got_ = 0;
  size_t code_bytes_ = 0;
  size_t bytes_ = 0;
  uint8_t* memory_ = nullptr;
  uint64_t entry_ = 0;
};

}  // namespace

absl::StatusOr<LoadedObject> LoadedObject::Load(std::string_view object, std::string_view symbol) {
  Loader loader(object, symbol);
  if (absl::Status status = loader.Run(); !status.ok()) return status;
  const size_t bytes = loader.bytes();
  const KernelFunction function = loader.function();
  return LoadedObject(loader.TakeMemory(), bytes, function);
}

LoadedObject::LoadedObject(LoadedObject&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      function_(other.function_) {}

LoadedObject& LoadedObject::operator=(LoadedObject&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(function_, other.function_);
  return *this;
}

LoadedObject::~LoadedObject() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace outboard::cpu
