package main

import (
	"fmt"
	"strings"
)

// doCompletion prints a script that completes verbs, options and their words. After COMMAND's first word the shell's own
// completion goes on.
func doCompletion(c *call) int {
	scripts := map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	script, ok := scripts[c.cfg.Keys[0]]
	if !ok {
		c.ui.err("%s is not a shell that lockrun has completion for; there is bash, zsh and fish", quoted(c.cfg.Keys[0]))
		return codeUsage
	}
	return printed(c.ui, c.io.Out, script())
}

// eachOption calls f for every option with a flag that the verb has.
func eachOption(v verb, f func(*option)) {
	for i := range options {
		if o := &options[i]; o.verbs&v != 0 && o.name != "" {
			f(o)
		}
	}
}

// flagWords are the long options of a verb, separated by spaces.
func flagWords(v verb) string {
	var words []string
	eachOption(v, func(o *option) { words = append(words, "--"+o.name) })
	return strings.Join(words, " ")
}

// takesValue lists, as a shell pattern, the options that the next word belongs to.
func takesValue() string {
	var words []string
	eachOption(vAny, func(o *option) {
		if o.kind == kindSwitch {
			return
		}
		words = append(words, "--"+o.name)
		if o.short != "" {
			words = append(words, "-"+o.short)
		}
	})
	return strings.Join(words, "|")
}

// valueWords are the words that may follow an option, "" where there is no list of them.
func (o *option) valueWords() string {
	switch {
	case o.kind == kindChoice:
		return o.choices
	case o.name == "exit-code":
		return strings.Join(sortedExitNames(), "= ") + "="
	case o.kind == kindHooks:
		return strings.Join(events, "= ") + "="
	case o.name == "wait":
		return "forever"
	}
	return ""
}

// isFile tells the options whose value is a path.
func (o *option) isFile() bool { return o.arg == "FILE" }

func verbNames() string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return strings.Join(names, " ")
}

const bashHead = `# bash completion for lockrun; source it, or put it into /etc/bash_completion.d
_lockrun() {
    local -a words at
    local cword
    _lockrun_words
    local cur=${words[cword]} prev=${words[cword-1]} verb= i=1 word
    if [[ $cur == --*=* ]]; then
        prev=${cur%%%%=*} cur=${cur#*=}
    fi
    COMPREPLY=()
    while ((i < cword)); do
        word=${words[i]}
        case $word in
            --) _lockrun_command ${at[i+1]}; return ;;
            %s) ((i++)) ;;
            -*) ;;
            *) if [[ -z $verb ]]; then
                   case " %s " in
                       *" $word "*) verb=$word ;;
                       *) _lockrun_command ${at[i]}; return ;;
                   esac
               elif [[ $verb == run ]]; then
                   _lockrun_command ${at[i]}; return
               fi ;;
        esac
        ((i++))
    done
`

const bashTail = `    case $verb in
        help) COMPREPLY=($(compgen -W "%s" -- "$cur")); return ;;
        completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
    esac
    case $cur in
        -*) COMPREPLY=($(compgen -W "$(_lockrun_options "$verb")" -- "$cur")) ;;
        *) case $verb in
               "") COMPREPLY=($(compgen -W "%s" -- "$cur") $(compgen -c -- "$cur")) ;;
               run) COMPREPLY=($(compgen -c -- "$cur")) ;;
           esac ;;
    esac
}

# bash cuts words at = : and @ as well (COMP_WORDBREAKS). Here they are put together again as they were written, in words;
# at has where each begins in COMP_WORDS, and cword which one is to be completed.
_lockrun_words() {
    local rest=$COMP_LINE i word blank
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]} blank=${rest%%%%[![:blank:]]*}
        if ((i == 0)) || [[ -n $blank || -z $word || $rest != "$word"* ]]; then
            words+=("$word") at+=($i)
        else
            words[${#words[@]}-1]+=$word
        fi
        rest=${rest#"$blank"} rest=${rest#"$word"}
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
    done
}

# The words of COMMAND are completed as they would be without lockrun.
_lockrun_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset $1
    elif ((COMP_CWORD == $1)); then
        COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}
complete -o nosort -F _lockrun lockrun 2>/dev/null || complete -F _lockrun lockrun
`

func bashCompletion() string {
	var b strings.Builder
	fmt.Fprintf(&b, bashHead, takesValue(), verbNames())
	b.WriteString("    case $prev in\n")
	eachOption(vAny, func(o *option) {
		switch {
		case o.valueWords() != "":
			fmt.Fprintf(&b, "        --%s) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", o.name, o.valueWords())
		case o.isFile():
			fmt.Fprintf(&b, "        --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", o.name)
		}
	})
	fmt.Fprintf(&b, "        %s) return ;;\n    esac\n", takesValue())
	fmt.Fprintf(&b, bashTail, verbNames(), verbNames())
	b.WriteString("\n_lockrun_options() {\n    case $1 in\n")
	for _, c := range commands() {
		name := c.name
		if c.is(vRun) {
			name = `run|""`
		}
		fmt.Fprintf(&b, "        %s) echo %q ;;\n", name, flagWords(c.bit))
	}
	b.WriteString("    esac\n}\n")
	return b.String()
}

// zshText quotes an explanation for _arguments, where brackets and colons have a meaning.
var zshText = strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`)

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef lockrun\n# zsh completion for lockrun; put it as _lockrun into a folder of $fpath\n_lockrun() {\n    local -a verbs\n    verbs=(\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "        '%s:%s'\n", c.name, zshText.Replace(c.help))
	}
	b.WriteString("    )\n    case ${words[2]} in\n")
	for _, c := range commands() {
		if c.is(vRun) {
			continue
		}
		fmt.Fprintf(&b, "        %s)\n            shift words; ((CURRENT--))\n            (( CURRENT > 0 )) && _arguments%s%s\n            return ;;\n", c.name, zshOptions(c.bit), zshRest(c))
	}
	b.WriteString("        run) shift words; ((CURRENT--)) ;;\n    esac\n")
	b.WriteString("    if (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then\n        _describe -t verbs verb verbs\n    fi\n")
	fmt.Fprintf(&b, "    _arguments -S%s '(-)1:command:_command_names -e' '*::argument:_normal'\n}\n", zshOptions(vRun))
	b.WriteString("if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _lockrun \"$@\"; else compdef _lockrun lockrun; fi\n")
	return b.String()
}

func zshRest(c *command) string {
	switch {
	case c.is(vHelp):
		return fmt.Sprintf(" '1:verb:(%s)'", verbNames())
	case c.is(vCompletion):
		return " '1:shell:(bash zsh fish)'"
	case c.args != "":
		return " '*:key:'"
	}
	return ""
}

// zshOptions are the options of a verb for _arguments: an "=" after the name takes the value from the same word too, and a
// star lets an option come again.
func zshOptions(v verb) string {
	var b strings.Builder
	eachOption(v, func(o *option) {
		value, equals, star := "", "=", ""
		switch {
		case o.kind == kindSwitch:
			equals = ""
		case o.valueWords() != "":
			value = ":" + o.name + ":(" + o.valueWords() + ")"
		case o.isFile():
			value = ":file:_files"
		default:
			value = ":" + o.name + ":"
		}
		switch o.kind {
		case kindList, kindPairs, kindHooks:
			star = "*"
		}
		if o.short != "" {
			fmt.Fprintf(&b, " \\\n            '%s-%s[%s]%s'", star, o.short, zshText.Replace(o.help), value)
		}
		fmt.Fprintf(&b, " \\\n            '%s--%s%s[%s]%s'", star, o.name, equals, zshText.Replace(o.help), value)
	})
	return b.String()
}

const fishHead = `# fish completion for lockrun; put it into ~/.config/fish/completions/lockrun.fish
# The words of COMMAND are completed as they would be without lockrun.
function __lockrun_command
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -l rest (string escape -- $words[(math $at + 1)..-1])
    set -l line (string join ' ' -- $rest (commandline -ct))
    complete -C "$line"
end
complete -c lockrun -n 'contains -- -- (commandline -opc)' -xa '(__lockrun_command)'
`

func fishCompletion() string {
	var b strings.Builder
	b.WriteString(fishHead)
	fmt.Fprintf(&b, "set -l verbs %s\n", verbNames())
	b.WriteString("complete -c lockrun -n \"not __fish_seen_subcommand_from $verbs; and __fish_is_first_token\" -xa '(__fish_complete_subcommand)'\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "complete -c lockrun -n __fish_use_subcommand -a %s -d %s\n", c.name, fishQuote(c.help))
	}
	for _, c := range commands() {
		when := fmt.Sprintf("\"__fish_seen_subcommand_from %s\"", c.name)
		if c.is(vRun) {
			when = "\"not __fish_seen_subcommand_from $verbs; or __fish_seen_subcommand_from run\""
		}
		eachOption(c.bit, func(o *option) { b.WriteString(fishOption(o, when)) })
	}
	fmt.Fprintf(&b, "complete -c lockrun -n \"__fish_seen_subcommand_from help\" -xa '%s'\n", verbNames())
	b.WriteString("complete -c lockrun -n \"__fish_seen_subcommand_from completion\" -xa 'bash zsh fish'\n")
	return b.String()
}

func fishOption(o *option, when string) string {
	s := fmt.Sprintf("complete -c lockrun -n %s -l %s", when, o.name)
	if o.short != "" {
		s += " -s " + o.short
	}
	switch {
	case o.kind == kindSwitch:
		s += " -f"
	case o.valueWords() != "":
		s += fmt.Sprintf(" -xa '%s'", o.valueWords())
	case o.isFile():
		s += " -r"
	default:
		s += " -x"
	}
	return s + " -d " + fishQuote(o.help) + "\n"
}

func fishQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }
