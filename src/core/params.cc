// Printing and keying of parameters.
#include "core/params.h"

#include "core/check.h"
#include "core/program.h"

namespace postern::internal {

void FieldSink::operator()(std::string_view name, double value) {
  text(name, fmt::format("{}", value));
}
void FieldSink::operator()(std::string_view name, const std::vector<int>& value) {
  text(name, fmt::format("[{}]", fmt::join(value, ",")));
}
void FieldSink::operator()(std::string_view name, const std::vector<bool>& value) {
  text(name, text_of(value));
}
void FieldSink::operator()(std::string_view name, const std::vector<std::string>& value) {
  text(name, fmt::format("[{}]", text_of(value)));
}

std::string kinds_of(const Attributes& attributes) {
  std::string kinds;
  for (const auto& [name, value] : attributes.items()) kinds += std::to_string(value.index());
  return kinds;
}
std::string named_text(const std::string& name, const Attributes& attributes) {
  if (attributes.items().empty()) return name;
  return name + to_string(attributes);
}
std::string text_of(const std::vector<bool>& bits) {
  std::string text;
  for (const bool bit : bits) text += bit ? 'T' : 'F';
  return text;
}
std::string text_of(const std::vector<std::string>& list) {
  Separator comma(",");
  std::string text;
  for (const std::string& item : list) text += fmt::format("{}{}", comma(), word_or_quoted(item));
  return text;
}

namespace {

struct Printer final : FieldSink {
  std::string out;
  void text(std::string_view name, std::string_view value) override {
    if (!out.empty()) out += ", ";
    out += name;
    out += "=";
    out += one_line(value);
  }
  void program(std::string_view, const ProgramPtr&) override {
  }  // to_string(Program) prints them below the equation
  void identity(std::string_view, const void*) override {}
};

struct Keyer final : FieldSink {
  explicit Keyer(std::string& k) : key(k) {}
  std::string& key;
  // The name too: of fields that are left out where they are the default, one must not pass for
  // another.
  void text(std::string_view name, std::string_view value) override {
    key += name;
    key += '=';
    key += std::to_string(value.size());
    key += ':';
    key += value;
  }
  void hidden(std::string_view name, std::string_view value) override { text(name, value); }
  void program(std::string_view, const ProgramPtr& value) override { append_key(key, *value); }
  void identity(std::string_view, const void* value) override { key += fmt::format("@{}", value); }
};

struct Collector final : FieldSink {
  std::vector<ProgramPtr> programs;
  bool wants_text() const override { return false; }
  void text(std::string_view, std::string_view) override {}
  void program(std::string_view, const ProgramPtr& value) override { programs.push_back(value); }
  void identity(std::string_view, const void*) override {}
};

}  // namespace

std::string to_string(const Params& params) {
  Printer printer;
  params.fields(printer);
  return std::move(printer.out);
}

void append_key(std::string& key, const Params& params) {
  Keyer keyer(key);
  params.fields(keyer);
}

std::vector<ProgramPtr> programs_of(const Params& params) {
  Collector collector;
  params.fields(collector);
  return std::move(collector.programs);
}

}  // namespace postern::internal
