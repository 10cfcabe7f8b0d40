// Objects of kernels from a compiler that cannot be trusted: as bytes, and as an object made from a
// list of decisions, of which some fields are then overwritten. Refused, or loaded so that the
// kernel's entry can be executed and not written. The code itself is not run.
#include <elf.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "runtime/cpu/elf_loader.h"
#include "runtime/limits.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"

using namespace outboard;

namespace {

constexpr char kKernel[] = "kernel";
constexpr char kNames[] =
    "\0kernel\0exp2f\0system\0table\0.text\0.rodata\0.data.rel.ro\0.rela.text";
constexpr uint32_t kKernelName = 1, kExpName = 8, kSystemName = 14, kTableName = 21;
constexpr uint32_t kTextName = 27, kRodataName = 33, kRelroName = 41, kRelaName = 54;
// Where a sum or a product of sizes wraps, or just does not.
constexpr uint64_t kLarge[] = {0,
                               1,
                               0xFF,
                               0xFFFF,
                               0x7FFFFFFF,
                               0xFFFFFFFF,
                               uint64_t{1} << 32,
                               INT64_MAX,
                               UINT64_MAX,
                               UINT64_MAX - 63,
                               limits::kObjectBytesMax};

template <typename T>
void Append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint64_t SomeNumber(test::ByteSource& bytes) {
  const uint8_t byte = bytes.Byte();
  return byte < 200 ? byte : kLarge[byte % std::size(kLarge)];
}

// Sections: 1 code, 2 constants, 3 their relocations, 4 symbols, 5 names.
std::string MakeObject(test::ByteSource bytes) {
  std::string code(bytes.Block());
  if (code.empty()) code = std::string(32, '\xC3');
  std::string constants(bytes.Block());
  std::string relocations, symbols;
  Append(symbols, Elf64_Sym{});
  Append(symbols, Elf64_Sym{.st_name = kKernelName,
                            .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                            .st_shndx = 1});
  Append(symbols, Elf64_Sym{.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = 2});
  for (const uint32_t name : {kExpName, kSystemName, kTableName})
    Append(symbols, Elf64_Sym{.st_name = name,
                              .st_info = static_cast<unsigned char>(bytes.Byte()),
                              .st_shndx = static_cast<Elf64_Section>(bytes.Below(4)),
                              .st_value = SomeNumber(bytes)});
  for (int i = bytes.Below(16); i > 0; --i)
    Append(relocations, Elf64_Rela{.r_offset = SomeNumber(bytes),
                                   .r_info = ELF64_R_INFO(static_cast<uint64_t>(bytes.Below(8)),
                                                          static_cast<uint32_t>(bytes.Below(44))),
                                   .r_addend = static_cast<int64_t>(SomeNumber(bytes))});
  const std::string names(kNames, sizeof kNames);
  std::string object(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> sections(1);
  const auto add = [&](uint32_t name, uint32_t type, uint64_t flags, const std::string& content,
                       uint32_t link, uint32_t info) {
    sections.push_back({.sh_name = name,
                        .sh_type = type,
                        .sh_flags = flags,
                        .sh_offset = object.size(),
                        .sh_size = content.size(),
                        .sh_link = link,
                        .sh_info = info,
                        .sh_addralign = uint64_t{1} << bytes.Below(14)});
    object += content;
  };
  const bool relocated = bytes.OneIn(2);
  add(kTextName, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, code, 0, 0);
  add(relocated ? kRelroName : kRodataName, SHT_PROGBITS, SHF_ALLOC | (relocated ? SHF_WRITE : 0),
      constants, 0, 0);
  add(kRelaName, SHT_RELA, 0, relocations, 4, 1 + static_cast<uint32_t>(bytes.Below(2)));
  add(0, SHT_SYMTAB, 0, symbols, 5, 1);
  add(0, SHT_STRTAB, 0, names, 0, 0);
  Elf64_Ehdr header{.e_type = ET_REL,
                    .e_machine = EM_X86_64,
                    .e_shoff = object.size(),
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = static_cast<Elf64_Half>(sections.size()),
                    .e_shstrndx = 5};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  std::memcpy(object.data(), &header, sizeof header);
  for (const Elf64_Shdr& section : sections) Append(object, section);
  for (int i = bytes.Below(4); i > 0; --i) {
    const uint64_t value = SomeNumber(bytes);
    const size_t width = size_t{1} << bytes.Below(4);
    const size_t at = (bytes.Byte() + size_t{256} * bytes.Byte()) % (object.size() - sizeof value);
    std::memcpy(object.data() + at, &value, width);
  }
  return object;
}

// As the kernel of the operating system has mapped it: "r-xp" of the line that holds the address.
std::string ProtectionAt(const void* address) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  OB_CHECK(maps != nullptr);
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  char line[512], protection[8] = "";
  std::string found;
  while (found.empty() && std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t from = 0, to = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &to, protection) == 3 &&
        from <= wanted && wanted < to)
      found = protection;
  }
  std::fclose(maps);
  return found;
}

void Check(std::string_view object) {
  const auto loaded = cpu::LoadedObject::Load(object, kKernel);
  if (!loaded.ok()) return;
  OB_CHECK(loaded->bytes() <= 2 * limits::kObjectBytesMax);
  OB_CHECK(ProtectionAt(reinterpret_cast<const void*>(loaded->function())) == "r-xp");
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string plain = MakeObject(test::ByteSource(std::string_view()));
  OB_CHECK(cpu::LoadedObject::Load(plain, kKernel).ok());
  // A call, a constant's address, an address in constants.
  std::vector<std::string> seeds = {plain};
  for (const uint8_t type : {R_X86_64_64, R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_GOTPCREL,
                             R_X86_64_REX_GOTPCRELX, R_X86_64_PC64}) {
    std::string decisions = test::BlockOf(std::string(64, '\x90')) + test::BlockOf("constants");
    decisions.append(9, '\0');  // symbols
    decisions.push_back(1);     // one relocation
    for (const uint8_t decision : {uint8_t{8}, uint8_t{3}, type, uint8_t{4}})
      decisions.push_back(static_cast<char>(decision));
    seeds.push_back(decisions);
  }
  test::WriteSeeds(*argc, *argv, seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  Check(MakeObject(test::ByteSource(bytes)));
  return 0;
}
