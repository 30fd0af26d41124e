// Oniguruma's names of classes and properties, and their PCRE2 equivalents.
#pragma once

#include <string_view>

namespace colonnade::tokenizers::regex_names {

inline constexpr const char* kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";  // \w in a class
/// \w outside of a class: Oniguruma's table for Latin-1 includes superscript digits and fractions.
inline constexpr const char* kWordOutsideClass =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

/// A name in Oniguruma and its PCRE2 equivalent.
struct NameMapping {
  std::string_view name, text;
};

/// Properties, by lowercase names without spaces, hyphens and underscores, which are ignored. Scripts need
/// "sc:", because PCRE2 reads a bare script name as Script_Extensions.
inline constexpr NameMapping kProperties[] = {
    {"l", "L"},
    {"letter", "L"},
    {"lc", "L&"},
    {"casedletter", "L&"},
    {"lu", "Lu"},
    {"uppercaseletter", "Lu"},
    {"ll", "Ll"},
    {"lowercaseletter", "Ll"},
    {"lt", "Lt"},
    {"titlecaseletter", "Lt"},
    {"lm", "Lm"},
    {"modifierletter", "Lm"},
    {"lo", "Lo"},
    {"otherletter", "Lo"},
    {"m", "M"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"mn", "Mn"},
    {"nonspacingmark", "Mn"},
    {"mc", "Mc"},
    {"spacingmark", "Mc"},
    {"me", "Me"},
    {"enclosingmark", "Me"},
    {"n", "N"},
    {"number", "N"},
    {"nd", "Nd"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"nl", "Nl"},
    {"letternumber", "Nl"},
    {"no", "No"},
    {"othernumber", "No"},
    {"p", "P"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"pc", "Pc"},
    {"connectorpunctuation", "Pc"},
    {"pd", "Pd"},
    {"dashpunctuation", "Pd"},
    {"ps", "Ps"},
    {"openpunctuation", "Ps"},
    {"pe", "Pe"},
    {"closepunctuation", "Pe"},
    {"pi", "Pi"},
    {"initialpunctuation", "Pi"},
    {"pf", "Pf"},
    {"finalpunctuation", "Pf"},
    {"po", "Po"},
    {"otherpunctuation", "Po"},
    {"s", "S"},
    {"symbol", "S"},
    {"sm", "Sm"},
    {"mathsymbol", "Sm"},
    {"sc", "Sc"},
    {"currencysymbol", "Sc"},
    {"sk", "Sk"},
    {"modifiersymbol", "Sk"},
    {"so", "So"},
    {"othersymbol", "So"},
    {"z", "Z"},
    {"separator", "Z"},
    {"zs", "Zs"},
    {"spaceseparator", "Zs"},
    {"zl", "Zl"},
    {"lineseparator", "Zl"},
    {"zp", "Zp"},
    {"paragraphseparator", "Zp"},
    {"c", "C"},
    {"other", "C"},
    {"cc", "Cc"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"cf", "Cf"},
    {"format", "Cf"},
    {"co", "Co"},
    {"privateuse", "Co"},
    {"cn", "Cn"},
    {"unassigned", "Cn"},
    {"alphabetic", "Alphabetic"},
    {"alpha", "Alphabetic"},
    {"uppercase", "Uppercase"},
    {"upper", "Uppercase"},
    {"lowercase", "Lowercase"},
    {"lower", "Lowercase"},
    {"whitespace", "White_Space"},
    {"space", "White_Space"},
    {"any", "Any"},
    {"han", "sc:Han"},
    {"hiragana", "sc:Hiragana"},
    {"katakana", "sc:Katakana"},
    {"hangul", "sc:Hangul"},
    {"latin", "sc:Latin"},
    {"greek", "sc:Greek"},
    {"cyrillic", "sc:Cyrillic"},
    {"arabic", "sc:Arabic"},
    {"hebrew", "sc:Hebrew"},
    {"thai", "sc:Thai"},
    {"devanagari", "sc:Devanagari"},
};

/// POSIX classes. Inverse classes that are not listed become alternatives.
inline constexpr NameMapping kPosix[] = {{"alpha", R"(\p{Alphabetic})"},
                                         {"^alpha", R"(\P{Alphabetic})"},
                                         {"digit", R"(\p{Nd})"},
                                         {"^digit", R"(\P{Nd})"},
                                         {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                                         {"punct", R"(\p{P}\p{S})"},
                                         {"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
                                         {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
                                         {"upper", R"(\p{Uppercase})"},
                                         {"^upper", R"(\P{Uppercase})"},
                                         {"lower", R"(\p{Lowercase})"},
                                         {"^lower", R"(\P{Lowercase})"},
                                         {"space", kSpace},
                                         {"^space", R"(\P{White_Space})"},
                                         {"blank", R"(\t\p{Zs})"},
                                         {"cntrl", R"(\p{Cc})"},
                                         {"^cntrl", R"(\P{Cc})"},
                                         {"xdigit", "0-9A-Fa-f"},
                                         {"word", kWord}};

}  // namespace colonnade::tokenizers::regex_names
