// Reading MLIR's bytecode, version 6: sections, tables, and a tree of operations.
//
// The file is a list of sections. One has all strings; one the dialects and their operations'
// names; one the bytes of types and attributes, with a table of how long each is; one the
// operations, which refer to all of these, and to values, by number. Nothing is interpreted here:
// types and attributes stay bytes until somebody asks for them. Whatever the bytes are, reading
// ends: every count is compared with what is left, every number with its table, and depth has a
// limit.
#include "bytecode.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace postern::internal::imported {

void refuse_cut(std::string_view why) {
  throw Error(ErrorCode::data_loss, fmt::format("{}: the file was changed or cut short", why));
}

void refuse_damaged(std::string_view why) {
  throw Error(ErrorCode::data_loss, fmt::format("{}: this is not how StableHLO writes it", why));
}

std::string_view ByteReader::take(std::uint64_t count) {
  if (count > bytes_.size())
    refuse_cut(fmt::format("{} bytes should follow where {} are", count, bytes_.size()));
  const std::string_view out = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return out;
}

// The zeros below the first byte's lowest one tell how many bytes follow it.
std::uint64_t ByteReader::number() {
  const std::uint8_t first = byte();
  const auto more = static_cast<unsigned>(std::countr_zero(first));  // of a byte: at most 8
  std::uint64_t rest = 0;
  const std::string_view bytes = take(more);
  std::memcpy(&rest, bytes.data(), bytes.size());
  if (more >= 7) return rest;
  return rest << (7 - more) | first >> (more + 1);
}

std::int64_t ByteReader::signed_number() {
  const std::uint64_t n = number();
  return static_cast<std::int64_t>(n >> 1 ^ (~(n & 1) + 1));
}

std::size_t ByteReader::count() {
  const std::uint64_t n = number();
  if (n > left()) refuse_cut(fmt::format("{} things should follow in {} bytes", n, left()));
  return n;
}

std::size_t ByteReader::index(std::size_t size, std::string_view what) {
  const std::uint64_t n = number();
  if (n >= size) refuse_damaged(fmt::format("{} {} is asked for, there are {}", what, n, size));
  return n;
}

namespace {

constexpr std::uint64_t bytecode_version = 6;
constexpr int deepest_region = 100;
enum Section {
  strings,
  dialects,
  entries,
  entry_offsets,
  ir,
  resources,
  resource_offsets,
  dialect_versions,
  properties,
  section_count
};
enum Holds {
  attributes_bit = 1,
  results_bit = 2,
  operands_bit = 4,
  successors_bit = 8,
  regions_bit = 16,
  uses_bit = 32,
  properties_bit = 64
};

struct SectionBytes {
  int id;
  std::string_view bytes;
};
SectionBytes take_section(ByteReader& in, std::size_t whole) {
  const std::uint8_t id = in.byte();
  const std::uint64_t length = in.number();
  if (id & 0x80) {
    const std::uint64_t alignment = in.number();
    if (alignment == 0 || alignment > 4096) refuse_damaged("a section's alignment is out of range");
    while ((whole - in.left()) % alignment) in.byte();
  }
  return {id & 0x7f, in.take(length)};
}

// Regions that see the values around them number theirs after those; the others begin anew.
class IrReader {
 public:
  IrReader(Bytecode& code, std::size_t file_size) : code_(code), file_size_(file_size) {}

  void read(std::string_view bytes) {
    ByteReader in(bytes);
    code_.top = block(in, 0);
  }

 private:
  struct Scope {
    std::vector<std::size_t> values;  // those that are not made yet are npos
    std::size_t next = 0;
  };
  static constexpr auto npos = static_cast<std::size_t>(-1);

  std::size_t define(std::size_t type) {
    const std::size_t value = code_.value_types.size();
    code_.value_types.push_back(type);
    if (scope_.next >= scope_.values.size()) refuse_cut("a region has more values than it says");
    scope_.values[scope_.next++] = value;
    return value;
  }

  // In which order values were used: of no use to us.
  static void skip_uses(ByteReader& in, std::size_t values) {
    const bool several = values > 1;
    std::uint64_t lists = 1;
    if (several) lists = in.count();
    for (; lists; --lists) {
      if (several) in.number();
      for (std::uint64_t k = in.number() >> 1; k; --k) in.number();
    }
  }

  Block block(ByteReader& in, int depth) {
    Block out;
    const std::uint64_t head = in.number();
    if (head & 1) {
      for (std::size_t n = in.count(); n; --n) {
        const std::uint64_t type = in.number();
        if (type >> 1 >= code_.types.size()) refuse_damaged("a block's argument has no type");
        if (type & 1) in.index(code_.attributes.size(), "location");
        out.arguments.push_back(define(type >> 1));
      }
      if (in.byte()) skip_uses(in, out.arguments.size());
    }
    if (head >> 1 > in.left()) refuse_cut("a block has more operations than bytes");
    for (std::uint64_t n = head >> 1; n; --n) out.operations.push_back(operation(in, depth));
    return out;
  }

  Operation operation(ByteReader& in, int depth) {
    Operation out;
    out.name = in.index(code_.operations.size(), "operation");
    const int holds = in.byte();
    out.location = in.index(code_.attributes.size(), "location");
    if (holds & attributes_bit) out.attributes = in.index(code_.attributes.size(), "attribute");
    if (holds & properties_bit) out.properties = in.index(code_.properties.size(), "property");
    if (holds & results_bit)
      for (std::size_t n = in.count(); n; --n)
        result_types_.push_back(in.index(code_.types.size(), "type"));
    const std::vector<std::size_t> types = std::move(result_types_);
    result_types_.clear();
    if (holds & operands_bit)
      for (std::size_t n = in.count(); n; --n) {
        const std::size_t value = scope_.values[in.index(scope_.values.size(), "value")];
        if (value == npos) refuse_damaged("a value is used before it is made");
        out.operands.push_back(value);
      }
    if (holds & successors_bit)
      throw Error(ErrorCode::unimplemented,
                  fmt::format("{} jumps between blocks", code_.operations[out.name]));
    for (const std::size_t type : types) out.results.push_back(define(type));
    if (holds & uses_bit) skip_uses(in, out.results.size());
    if (holds & regions_bit) regions(in, out, depth + 1);
    return out;
  }

  void regions(ByteReader& in, Operation& out, int depth) {
    if (depth > deepest_region)
      throw Error(ErrorCode::resource_exhausted,
                  fmt::format("regions are nested more than {} deep", deepest_region));
    const std::uint64_t head = in.number();
    if (head >> 1 > in.left()) refuse_cut("an operation has more regions than bytes");
    if (!(head & 1)) {
      for (std::uint64_t n = head >> 1; n; --n) out.regions.push_back(region(in, depth));
      return;
    }
    const SectionBytes section = take_section(in, file_size_);
    if (section.id != ir) refuse_damaged("a region is not in a section of operations");
    ByteReader inside(section.bytes);
    Scope outer = std::exchange(scope_, Scope());
    for (std::uint64_t n = head >> 1; n; --n) out.regions.push_back(region(inside, depth));
    scope_ = std::move(outer);
  }

  std::vector<Block> region(ByteReader& in, int depth) {
    std::vector<Block> out;
    const std::size_t blocks = in.count();
    if (!blocks) return out;
    const std::size_t values = in.count(), outer_next = scope_.next,
                      outer_size = scope_.values.size();
    // Each value takes a byte, so there are no more of them than bytes in the file, whatever
    // regions say.
    if ((announced_ += values) > file_size_)
      refuse_damaged("regions have more values than the file has bytes");
    scope_.next = outer_size;
    scope_.values.resize(outer_size + values, npos);
    for (std::size_t n = blocks; n; --n) out.push_back(block(in, depth));
    scope_.values.resize(outer_size);
    scope_.next = outer_next;
    return out;
  }

  Bytecode& code_;
  const std::size_t file_size_;
  Scope scope_;
  std::vector<std::size_t> result_types_;
  std::size_t announced_ = 0;
};

void read_strings(Bytecode& code, ByteReader in) {
  std::vector<std::uint64_t> lengths(in.count());
  for (auto n = lengths.rbegin(); n != lengths.rend(); ++n) *n = in.number();
  for (const std::uint64_t length : lengths) {
    if (length == 0) refuse_cut("a string has no end");
    code.strings.push_back(in.take(length).substr(0, length - 1));
  }
}

std::vector<std::string_view> read_dialects(Bytecode& code, ByteReader in) {
  std::vector<std::string_view> names;
  auto text = [&](std::uint64_t index) {
    if (index >= code.strings.size()) refuse_damaged("a name is not among the strings");
    return code.strings[index];
  };
  for (std::size_t n = in.count(); n; --n) {
    const std::uint64_t head = in.number();
    names.push_back(text(head >> 1));
    if (head & 1) take_section(in, 0);  // of which version: each operation's name says its own
  }
  in.number();  // how many operations
  while (in.left()) {
    const std::string_view dialect = names[in.index(names.size(), "dialect")];
    for (std::size_t n = in.count(); n; --n)
      code.operations.push_back(fmt::format("{}.{}", dialect, text(in.number() >> 1)));
  }
  return names;
}

void read_entries(Bytecode& code, ByteReader offsets, ByteReader bytes,
                  const std::vector<std::string_view>& dialect_names) {
  const std::size_t attributes = offsets.count();
  const std::size_t types = offsets.count();
  while (offsets.left()) {
    const std::string_view dialect = dialect_names[offsets.index(dialect_names.size(), "dialect")];
    for (std::size_t n = offsets.count(); n; --n) {
      const std::uint64_t head = offsets.number();
      auto* list = &code.types;
      if (code.attributes.size() < attributes) list = &code.attributes;
      list->push_back({dialect, (head & 1) != 0, bytes.take(head >> 1)});
    }
  }
  if (code.attributes.size() != attributes || code.types.size() != types)
    refuse_cut("attributes and types are missing");
}

}  // namespace

Bytecode read_bytecode(std::string_view bytes) {
  Bytecode code;
  ByteReader in(bytes);
  if (in.take(bytecode_magic.size()) != bytecode_magic) refuse_damaged("this is no MLIR bytecode");
  const std::uint64_t version = in.number();
  if (version != bytecode_version)
    throw Error(
        ErrorCode::unimplemented,
        fmt::format(
            "it is MLIR bytecode of version {}, this reader knows {} (StableHLO 0.15 and later)",
            version, bytecode_version));
  const auto producer_at = bytes.size() - in.left();
  const auto producer_end = bytes.find('\0', producer_at);
  if (producer_end == std::string_view::npos) refuse_cut("the producer's name has no end");
  code.producer = in.take(producer_end + 1 - producer_at).substr(0, producer_end - producer_at);
  std::array<std::string_view, section_count> sections;
  while (in.left()) {
    const SectionBytes section = take_section(in, bytes.size());
    if (section.id < section_count) sections[static_cast<std::size_t>(section.id)] = section.bytes;
  }
  read_strings(code, ByteReader(sections[strings]));
  const std::vector<std::string_view> names = read_dialects(code, ByteReader(sections[dialects]));
  read_entries(code, ByteReader(sections[entry_offsets]), ByteReader(sections[entries]), names);
  if (!sections[properties].empty()) {
    ByteReader list(sections[properties]);
    for (std::size_t n = list.count(); n; --n) code.properties.push_back(list.take(list.number()));
  }
  IrReader(code, bytes.size()).read(sections[ir]);
  return code;
}

}  // namespace postern::internal::imported
