"""Tools for agents: functions as tools, built-in tools, MCP servers, approval, and the tool manager."""

from .approval import Approval, ApprovalRequest, Approvals, Rule
from .command import run_command
from .conversation import CONVERSATION_TOOLS, MEMORY_TOOLS, session_tools
from .definition import BadArguments, Tool, ToolContext, tool
from .file_tools import FILE_TOOLS
from .manager import ToolManager
from .mcp import McpFailed, McpServer, McpServers
from .workspace import OutsideWorkspace, WorkspaceFiles

__all__ = [
    "CONVERSATION_TOOLS",
    "FILE_TOOLS",
    "MEMORY_TOOLS",
    "Approval",
    "ApprovalRequest",
    "Approvals",
    "BadArguments",
    "McpFailed",
    "McpServer",
    "McpServers",
    "OutsideWorkspace",
    "Rule",
    "Tool",
    "ToolContext",
    "ToolManager",
    "WorkspaceFiles",
    "run_command",
    "session_tools",
    "tool",
]
