"""Jinja expressions for tests/vectors/chat/expressions.jsonl (written by tools/make_chat_vectors.py): TEMPLATES, REJECTED, and random expressions of
filters, methods and tests on values that include safe strings.
"""
TALK = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<4> & 'x'"}]}
VALUES = [
    "'<b>'", "'a\\nb\\n\\n c\\n'", "'hello world-foo (bar'", "'ß straße ǆ Σας'", "''", "' 12 '", "'3.75'", "'-1e2'", "'x_1'", "'1_0'", "'inf'",
    "'nan'", "'.5'", "'5.'", "'+3'", "5", "-7", "0", "2.5", "-0.5", "1000000000000000.0", "true", "false", "none", "nothing", "[3, 1, 2]", "['b', 'A', 'a', 'B']",
    "[1.5, 1, true]", "[]", "{'b': 1, 'A': 2, 'c': 0}", "{'k': 'v<', 'J': 'W'}", "{}", "(1, 2)", "messages", "messages[1].content", "('<i>' | safe)",
    "('a,b & c' | safe)", "(messages[1].content | e)", "[{'n': 'x', 'v': 2}, {'n': 'X', 'v': 1}, {'n': 'a', 'v': 2.0}]", "['a', ('b' | safe)]",
    "range(4)", "{'b': 1, 'a': 2}.items()", "{'b': 'x'}.values()", "[[2, 1], [1, 9], [1]]", "[('b', 1), ('a', 2)]", "[none, none]", "[0.1, 0.2, 0.5]",
    "[0.1, 0.2, 0.3]", "[1, 'a', none, 1.0, true]",
]
FILTERS = [
    "safe", "e", "escape", "forceescape", "string", "upper", "lower", "capitalize", "title", "trim", "trim('<a')", "indent", "indent(2)",
    "indent('> ')", "indent(1, true)", "indent(2, blank=true)", "indent(0)", "indent(first=true, width=3)", "reverse", "first", "last", "list",
    "join('-')", "join", "join('<' | safe)", "replace('a', '<')", "replace('<', 'q' | safe)", "replace('b', 'c', 1)", "replace(1, 2)", "length",
    "sort", "sort(reverse=true)", "sort(true, true)", "sort(attribute='v')", "sort(attribute='n,v')", "sort(false, true, 'n')", "sort(attribute=0)",
    "dictsort", "dictsort(true)", "dictsort(false, 'value')", "dictsort(by='value', reverse=true)", "min", "max", "min(attribute='v')",
    "max(attribute='v')", "max(true)", "max(attribute='n')", "min(attribute='missing')", "sum", "sum(start=1)", "sum('v')",
    "sum(attribute='v', start=0.5)", "sum(start=[])", "abs", "round", "round(1)", "round(2, 'floor')", "round(0, 'ceil')", "round(method='floor')",
    "round(precision=1)", "int", "int(9)", "int('x')", "float", "float('x')", "float(default=2)", "unique", "unique(true)", "unique(attribute='v')",
    "unique(attribute='n')", "tojson", "items", "map('upper')", "map('safe')", "map(attribute='n')", "map(attribute='q', default='-')",
    "map(attribute='q', default=none)", "map('int')", "select", "select('string')", "reject('number')", "selectattr('v')", "selectattr('v', 'gt', 1)",
    "default('d')", "default('d', true)", "count", "d", "tojson(indent=1)",
]
METHODS = [
    "strip()", "lstrip('<')", "rstrip()", "split()", "split(',')", "split(' ', 1)", "rsplit(' ', 1)", "splitlines()", "splitlines(true)", "upper()",
    "lower()", "capitalize()", "replace('a', '<')", "replace('<', 'a' | safe)", "join(['<', 'b' | safe])", "join(messages | map(attribute='role'))",
    "removeprefix('<')", "removesuffix('>')", "find('b')", "count('a')", "startswith('<')", "items()", "keys()", "values()", "get('b')",
    "striptags()", "unescape()", "title()",
]
TESTS = [
    "string", "mapping", "sequence", "iterable", "number", "escaped", "defined", "none", "sameas true", "sameas none", "in 'abc'", "boolean", "true",
]
OPERATORS = ["+", "~", "*", "==", "in", "<", "and", "or"]
SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[::-1]", "['b']", "[true]"]
GENERATOR = "{% set g = [1, 2, 3, 4] | select %}"
TEMPLATES = [
    "{{ ('<a>' | safe) + '<b>' }} {{ '<b>' + ('<a>' | safe) }} {{ ('<a>' | safe) ~ '<b>' }} {{ (['<'] | join('>' | safe)) + '&' }}",
    "{% set x = {'k': '<v>'} | tojson | safe %}{{ '\n' + x + '\n</parameter>\n' }}",
    "{{ [('a' | safe), 'b'] }} {{ {'k': 'a' | safe} }} {{ [('<' | safe)] | tojson }}",
    "{{ ('<a>' | safe).replace('a', '<') }} {{ ('<a>' | safe) | replace('a', '&') }} {{ ('a' | safe) * 2 + '<' }}",
    "{{ (('a b' | safe).split()[0]) + '<' }} {{ ('ab' | safe)[0] + '<' }} {{ ('ab' | safe) | first + '<' }} {{ ('ab' | safe) | last + '<' }}",
    "{{ (' a ' | safe | trim) + '<' }} {{ ('a' | safe | upper) + '<' }} {{ ('a' | safe | title) + '<' }} {{ ('a' | safe | string) + '<' }}",
    "{{ ('-' | safe).join(['<', 5, none, '>' | safe, nothing]) }}|{{ '-'.join(['<', '>' | safe]) + '<' }}",
    "{% macro m() %}<m>{% endmacro %}{% set b %}<b>{% endset %}{{ m() + ('<' | safe) }}{{ b + ('<' | safe) }}",
    "{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort(by='value', reverse=true) }}",
    "{{ ['b', 'A', 'a', 'B'] | sort }} {{ ['b', 'A', 'a', 'B'] | sort(reverse=true) }} {{ ['b', 'A', 'a', 'B'] | sort(case_sensitive=true) }} {{ {'b': 1, 'a': 2}.items() | sort }}",
    "{{ [{'n': 'x', 'v': 2}, {'n': 'X', 'v': 1}, {'n': 'a', 'v': 2}] | sort(attribute='v,n') | map(attribute='n') | join }}",
    "{{ [3, 1, 2] | min }} {{ [3, 1, 2] | max }} {{ ['b', 'A'] | min }} {{ ['b', 'A'] | max(case_sensitive=true) }} {{ [] | min | default('none') }} {{ messages | max(attribute='role') }}",
    "{{ [1, 2.5, true] | sum }} {{ [] | sum }} {{ [[1], [2]] | sum(start=[]) }} {{ [{'v': 2}, {'v': 3}] | sum(attribute='v') }} {{ [0.1, 0.2] | sum }}",
    "{{ -3 | abs }} {{ (-3) | abs }} {{ (-2.5) | abs }} {{ true | abs }}",
    "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.5 | round(method='ceil') }} {{ 7 | round }} {{ 7 | round(0, 'ceil') }} {{ -0.4 | round }} {{ (-0.4) | round(0, 'ceil') }}",
    "{{ '3.75' | float }} {{ 'x' | float }} {{ 'x' | float('y') }} {{ 7 | float }} {{ ' -1e2 ' | float }} {{ '5.' | float }} {{ '.5' | float }} {{ none | float }}",
    "{{ '3.75' | int }} {{ '-1e2' | int }} {{ 'inf' | int(4) }} {{ 'nan' | int }} {{ '1a' | int(3) }} {{ -2.9 | int }} {{ none | int('n') }}",
    "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb\n\nc\n' | indent(2, true) }}|{{ 'a\n\nb' | indent('> ', blank=true) }}|{{ '' | indent }}|{{ '' | indent(first=true) }}|{{ 'a\r\nb' | indent(1) }}",
    "{{ 'hello wORLD-foo (bar <baz' | title }} {{ 'ß Σ ΑΣ' | title }} {{ ' a' | title }} {{ 5 | title }}",
    "{{ [1, 1.0, true, 'a', 'A', none, none] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ messages | unique(attribute='role') | list }}",
    "{{ (1, 2) | reverse | list }} {{ {'a': 1, 'b': 2} | reverse | list }} {{ 'abc' | reverse }}",
    "{{ '<' | escape }} {{ '<' | e | e }} {{ '<' | safe | forceescape }} {{ '<' | e is escaped }} {{ 5 | e }} {{ '\"' | e }}",
    "{% set x = [1, 2] | map('string') %}{{ x | list }}{{ x | list }}{{ x is iterable }}{{ 'y' if x }}",
    "{% set x = [1, 2, 3] | select %}{{ x | first }}{{ 2 in x }}{{ x | list }}",
    "{{ none | map('upper') | list }}{{ nothing | select | list }}{{ none | selectattr('a') | list }}",
    "{{ [1] | map('string') }}", "{{ nothing | int }}", "{{ nothing | float }}", "{{ [nothing] }}",
    "{{ true is sameas true }} {{ 1 is sameas true }} {{ none is sameas none }} {{ nothing is sameas none }} {{ false is sameas false }}",
    "{{ [3, 1, 2] | min }} {{ ['b', 'A'] | min(true) }} {{ messages | min(attribute='content') }}", "{{ ('<' | safe | forceescape) + '<' }} {{ '<' | e | forceescape }}",
    "{{ '<' is escaped }} {{ ('<' | safe) is escaped }} {{ ['a' | safe, 'b'] | select('escaped') | list }}", "{{ [true, 1, none] | select('sameas', true) | list }} {{ [none, false] | reject('sameas', none) | list }}",
    GENERATOR + "{% for x in g %}{{ x }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.nextitem }}{{ loop.previtem }}{% endfor %}{{ g | list }}",
    GENERATOR + "{% for x in g %}{{ loop.last }}{% endfor %}{% for x in g %}x{% else %}empty{% endfor %}",
    GENERATOR + "{% for x in g if x > 1 %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}{{ g | list }}",
    GENERATOR + "{% for x in g %}{{ x }}{% break %}{% endfor %}{{ messages | length }}", GENERATOR + "{{ g | first }}{{ g | first }}{{ 4 in g }}{{ g | list }}{{ g | first is defined }}",
    GENERATOR + "{{ [g] | map('list') | list }}", GENERATOR + "{{ g | reverse | list }}{{ g | list }}", GENERATOR + "{{ g | sort }}{{ g | sum }}{{ g | join }}",
    "{{ [1, 2, 3] | select | map('string') | reject('equalto', '2') | unique | list }}", "{{ messages | map('items') | map('list') | list }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{% for m in messages | rejectattr('role', 'equalto', 'user') %}{{ m.content }}{{ loop.last }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < 2 %}{{ x }}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if ns.n < 2 %}{{ x }}{{ loop.last }}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if ns.n < 2 %}{{ x }}{{ loop.length }}{{ loop.revindex0 }}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "{% set ns = namespace() %}{% for x in [1, 2] if ns.l is undefined or ns.l.last %}{% set ns.l = loop %}{{ ns.l.last }}{% endfor %}{{ ns == ns }}",
    "{% set x = 5 %}{% for y in [1, 2] if x == 5 %}{% set x = 6 %}{{ x }}{{ loop.last }}{% endfor %}{{ namespace() == namespace() }}",
    "{{ nothing is undefined }} {{ 1 is integer }} {{ true is integer }} {{ 1.5 is float }} {{ false is false }} {{ 0 is false }} {{ 3 is odd }} {{ 3 is even }} {{ 1 is eq 1.0 }} {{ 1 is ne 2 }} {{ 3 is not divisibleby 2 }}",
    "{{ 1 is lt 2 }} {{ 1 is lessthan 1 }} {{ 1 is le 1 }} {{ 2 is gt 1 }} {{ 1 is greaterthan 1 }} {{ 1 is ge 1 }} {{ [1, 2, 3] | select('>', 1) | list }} {{ [1, 2] | reject('ne', 1) | list }}",
    "{{ ' a '.lstrip() }}|{{ '<a<'.rstrip('<') }}|{{ 'ab'.startswith('a') }} {{ 'ab'.endswith(('a', 'b')) }} {{ 'ab'.removeprefix('a') }} {{ 'ab'.removesuffix('b') }} {{ 'éab'.find('b') }} {{ 'aXaXa'.count('aXa') }}",
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.items() | list }}",
    "{{ {'b': {'z': 1}, 'a': {'z': 1}} | dictsort(by='value') }}", "{{ {'b': [1], 'a': [1]} | dictsort(by='value') }}", "{{ [{'z': 1}, {'z': 1}] | sort }}", "{{ {'b': none, 'a': none} | dictsort(by='value') }}",
    "{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}{{ 9007199254740992.0 < 9007199254740993 }}{{ -3 < -2.5 }}{{ 2.5 < 3 }}{{ 2 < 2.5 }}{{ -2 > -2.5 }}",
    "{{ [9007199254740993, 9007199254740992.0, 9007199254740992, 10000000000000000, '1e16' | float, 2.0, 2, 0.0, -0.0] | unique | list }}",
    "{{ [9007199254740993, 9007199254740992.0] | max }}{{ [9007199254740993, 9007199254740992.0] | sort }}",
    "{{ [['a']] | map(attribute='0') | list }}", "{{ [['a']] | map(attribute='²') | list }}", "{{ [1] | map(attribute='a', foo=1) | list }}", "{{ [1] | select('') | list }}",
    "{{ 'hello wORLD-foo (bar they\\'re'.title() }} {{ 'ß Σ ΑΣ ΑΣΑ α.Σ ǆa ŉx ﬁn'.title() }} {{ ('a<b' | safe).title() + '<' }} {{ '1a ªb ʰc'.title() }}",
    "{{ [[3, 1], [2]] | map('sort', reverse=true) | list }} {{ [[1, 3]] | map('sort', reverse=true) | list }} {{ [1.25] | map('round', precision=1) | list }}",
    "{{ [{}, {'a': {'b': 1}}, {'a': {}}] | map(attribute='a.b', default='z') | list }} {{ [{}] | map(attribute='a.b', default={'b': 1}) | list }}",
    "{{ [nothing] | map(attribute=none, default='z') | map('default', 'q') | list }} {{ [nothing, 1] | map('default', default_value=7) | list }}",
    "{{ [[{'n': 1}, {'n': 2}]] | map('join', ',', attribute='n') | list }} {{ [[{'n': 1}]] | map('map', attribute='n') | map('list') | list }} {{ [3, 4, 6] | select('divisibleby', num=3) | list }}",
]
# Templates that Jinja renders and Colonnade rejects: texts that depend on Python's version, and generators that may have been consumed.
REJECTED = [
    "{{ range(3) }}", "{{ {'a': 1}.items() }}", "{{ 9007199254740993 / 3 }}", "{{ [['a']] | map(attribute='٠') | list }}",
    "{% set ns = namespace() %}{% set h = [namespace(n=1)] | map(attribute='n') %}{{ h | list }}",
    *[GENERATOR + use for use in (
        "{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g | list }}", "{% for x in g %}[{{ x }}]{{ g | first }}{% endfor %}", "{% for x in g %}{{ x }}{{ 3 in g }}{% endfor %}",
        "{% for x in g %}{{ x }}{% for y in g %}({{ y }}){% endfor %}{% endfor %}", "{% set h = g | map('string') %}{{ g | first }}|{{ h | list }}",
        "{% set h = g | select %}{{ h | first }}{{ g | list }}{{ h | list }}", "{% set h = [g] | map('list') %}{{ g | first }}{{ h | list }}")],
]


def expression(rng, depth=0):
    kind = rng.randrange(12)
    if depth > 3 or kind < 2:
        return rng.choice(VALUES)
    if kind < 8:
        return expression(rng, depth + 1) + " | " + rng.choice(FILTERS)
    if kind == 8:
        return f"({expression(rng, depth + 1)}).{rng.choice(METHODS)}"
    if kind == 9:
        return f"({expression(rng, depth + 1)}) {rng.choice(OPERATORS)} ({expression(rng, depth + 1)})"
    if kind == 10:
        return f"({expression(rng, depth + 1)}){rng.choice(SUBSCRIPTS)}"
    return f"({expression(rng, depth + 1)}) is {rng.choice(TESTS)}"


def source(rng):
    """A template around a random expression."""
    made = expression(rng)
    return rng.choice(["{% set x = " + made + " %}{{ x }}|{{ x ~ '<' }}|{{ x | list }}", "{% for x in " + made + " %}[{{ x }}{{ x + '<' }}]{% endfor %}", "{{ [" + made + "] }}",
                       "{% set x = " + made + " %}{{ x | first }}{{ x | join(',') }}{{ 1 in x }}{{ x | list }}", "{{ " + made + " }}", "{{ " + made + " }}"])
